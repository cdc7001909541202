"""Train the seeds of a configuration and write their rows to <workdir>/rows.jsonl.

    python train.py --config=configs/listops.py:nystrom --workdir=runs/listops-nystrom
    python train.py --config=configs/image.py:linformer --workdir=runs/image-k128 \\
        --config.seeds='(0, 1, 2)' --config.model.attention.proj_dim=128

Run again, the same command resumes where it was stopped. Exit status: 0 complete, 1 every seed
diverged, 2 bad input or hosts that did not meet, 75 stopped before the end (signal, budget or a
lost host; run it again to resume), 134 the same on several hosts where JAX was the first to notice
that one was lost, 130 or 143 ended at once by a second signal. With --debug_nans, 1 also means that
a NaN occurred; with a traceback, that the program has a fault.

Several hosts run the same command on the same folders, with --distributed if Slurm, a TPU or MPI
provides their addresses, else with --coordinator_address, --num_processes and --process_id.
"""

import argparse

from lra.command_line import (
    ArgumentParser,
    folder,
    import_jax,
    parse_with_overrides,
    positive_minutes,
    run,
)
from lra.errors import TRAIN_IN_LESS, UserError
from lra.stopping import Stop, ignore_signals


def main(argv: list[str]) -> int:
    """Parse the flags, train, and return the exit status."""
    parser = _parser()
    options, overrides = parse_with_overrides(parser, argv)
    # Signals are handled from here on, since importing JAX takes seconds.
    with Stop(options.budget_minutes) as stop:
        return _train(options, overrides, stop)


def _main_then_exit(argv: list[str]) -> int:
    """Run `main`, then ignore signals, which would change the exit status."""
    status = main(argv)
    ignore_signals()
    return status


def _train(options: argparse.Namespace, overrides: list[str], stop: Stop) -> int:
    from lra.settings import load_config

    config = load_config(options.config, overrides)
    if options.print_config:
        from lra.protocol import describe

        print(describe(config))
        return 0
    if options.workdir is None:
        raise UserError("--workdir=DIR is needed to train; see --help")

    # JAX is imported only now, so that the errors above are reported at once.
    import_jax()
    from lra import hosts, rendezvous

    address = (options.coordinator_address, options.num_processes, options.process_id)
    addresses = rendezvous.addresses(options.distributed, *address)
    if options.debug_nans and addresses is not None:
        raise UserError("--debug_nans works on one host: one that ends would leave the others")
    # Imported before connecting, from when on no host must be late.
    from lra.loop import train

    with hosts.connected(addresses, stop):
        return train(
            config,
            options.workdir,
            options.data_dir,
            stop=stop,
            tensorboard=options.tensorboard,
            debug_nans=options.debug_nans,
        )


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="train.py", description=__doc__)
    parser.add_argument(
        "--config",
        required=True,
        metavar="configs/TASK.py:ATTENTION",
        help="config file and attention; --config.KEY=VALUE sets a key",
    )
    parser.add_argument("--workdir", type=folder, metavar="DIR", help="folder of this run")
    parser.add_argument(
        "--data_dir", type=folder, default="data", metavar="DIR", help="prepared data (data)"
    )
    parser.add_argument(
        "--budget_minutes",
        type=positive_minutes,
        metavar="M",
        help="save and stop before M minutes; a compilation is not interrupted, so may overrun",
    )
    parser.add_argument("--tensorboard", action="store_true", help="also write TensorBoard events")
    parser.add_argument(
        "--print_config", action="store_true", help="print every key and the protocol, then exit"
    )
    parser.add_argument(
        "--debug_nans",
        action="store_true",
        help="end at the first NaN, say where it arose; slow",
    )
    _add_hosts(parser)
    return parser


def _add_hosts(parser: ArgumentParser) -> None:
    """Add the flags of a run on several hosts."""
    parser.add_argument(
        "--distributed", action="store_true", help="several hosts, as Slurm, a TPU or MPI tells"
    )
    parser.add_argument(
        "--coordinator_address", metavar="HOST:PORT", help="several hosts: where process 0 listens"
    )
    parser.add_argument("--num_processes", type=int, metavar="N", help="how many there are")
    parser.add_argument("--process_id", type=int, metavar="I", help="which this is, from 0")


if __name__ == "__main__":
    run(_main_then_exit, out_of_memory=TRAIN_IN_LESS)
