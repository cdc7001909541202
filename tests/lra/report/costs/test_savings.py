"""Linformer's table, both ways."""

from lra.report.costs.legend import legend
from lra.report.costs.savings import savings
from lra.report.costs.sheets import sheets
from tests.lra.cost_row_factory import linformer, standard


def test_the_table_is_of_one_sharing_of_projections():
    layerwise = {"label": "linformer-256 layerwise", "length": 512}
    plain = [standard(length=512), *(linformer(k, 1.0, 10.0, length=512) for k in (128, 256))]
    (found,) = sheets(plain).values()
    time = savings(found)[0]
    assert time.lines[0][1:3] == ["3.00× (1.5×)", "3.00× (1.3×)"]
    assert "Ours is Linformer with default options." in time.caption
    (found,) = sheets([*plain, linformer(256, 1.5, 10.0, **layerwise)]).values()
    time = savings(found)[0]
    assert time.lines[0][1:3] == ["– (1.5×)", "2.00× (1.3×)"]
    assert "Ours is Linformer with layerwise sharing." in time.caption
    assert "Projections of Linformer: layerwise, one for the keys" in legend(found, [])


def test_linformers_table_both_ways():
    filled = {"length": 512, "filled": True, "memory_limit_mb": 16_000.0}
    rows = [
        standard(length=512),
        linformer(128, 2.0, 10.0, length=512),
        standard(12.0, batch=4, largest_batch=10, **filled),
        linformer(128, 2.0, batch=2, largest_batch=25, **filled),
        standard(None, 50_000.0, status="out_of_memory", **filled | {"length": 1024}),
        linformer(128, 2.0, batch=2, largest_batch=7, **filled | {"length": 1024}),
        # Of another batch than 1 this tells nothing.
        standard(None, 50_000.0, status="out_of_memory", batch=4, **filled | {"length": 2048}),
        linformer(128, 2.0, batch=2, largest_batch=7, **filled | {"length": 2048}),
    ]
    (found,) = sheets(rows).values()
    time, memory, filled_time, largest = savings(found)
    assert time.lines[0] == ["512", "1.50× (1.5×)", "– (1.3×)", "–", "–", "–"]
    assert memory.lines[0][1] == "4.00× (1.7×)"
    assert filled_time.lines[0][1] == "3.00× (1.5×)"
    first = [cells[1] for cells in largest.lines[:3]]
    assert first == ["2.50× (1.7×)", "> 7.00× (3.0×)", "– (6.1×)"]
    assert largest.lines[-1] == ["65,536", "– (60×)", "– (52×)", "– (40×)", "– (20×)", "– (18×)"]
    assert "Memory that the batch had to fit in: 16.0 GB." in largest.notes
