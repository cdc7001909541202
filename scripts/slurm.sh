#!/bin/bash
# One training on one node of a Slurm cluster, which may be taken away at any time:
#
#     sbatch scripts/slurm.sh --config=configs/text.py:nystrom --workdir=runs/text-nystrom
#
# All arguments are train.py's. Before the time limit and on preemption Slurm sends SIGTERM: train.py
# saves and ends with status 75, and the job goes back into the queue. A job that was killed without
# a signal (a lost node) is queued again by Slurm and goes on from its last checkpoint as well.
#
#SBATCH --job-name=lra
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120
#SBATCH --output=slurm-%j.txt

source .venv/bin/activate

# Compiled programs are kept, so that a start after a preemption takes seconds.
export JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-$PWD/.jax_cache}

# Since Slurm 22.05 srun does not inherit --cpus-per-task; without it the training has one core.
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
fi

# This shell outlives the signal: bash runs a trap when the command before it has ended.
trap : TERM
srun python train.py "$@"
status=$?
if [ $status -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $status
