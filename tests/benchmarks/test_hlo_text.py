"""The text of a compiled program, read."""

from benchmarks import hlo_text

TEXT = """\
HloModule jit_f, entry_computation_layout={(f32[4,8]{1,0})->f32[8]{0}}

%fused (p: f32[4,8]) -> f32[4,8] {
  %p = f32[4,8]{1,0} parameter(0)
  ROOT %sine = f32[4,8]{1,0} sine(%p), metadata={op_name="jit(f)/sin"}
}

ENTRY %main (x: f32[4,8]) -> (f32[4,8], pred[3]) {
  %x = f32[4,8]{1,0} parameter(0)
  %fusion = f32[4,8]{1,0} fusion(%x), kind=kLoop, calls=%fused
  ROOT %out = (f32[4,8]{1,0}, pred[3]{0}) custom-call(%fusion, %x), custom_call_target="both"
}
"""


def test_computations_and_their_instructions():
    program = hlo_text.read(TEXT)
    assert program.entry == "main"
    assert {name: len(inside) for name, inside in program.computations.items()} == {
        "fused": 2,
        "main": 3,
    }
    sine = program.computations["fused"][1]
    assert (sine.name, sine.operation, sine.source) == ("sine", "sine", "jit(f)/sin")
    _, fusion, out = program.computations["main"]
    assert (fusion.shape, fusion.size) == ("f32[4,8]{1,0}", 4 * 4 * 8)
    assert (fusion.operands, fusion.called, fusion.source) == (["x"], "fused", "")
    assert (out.size, out.operands, out.called) == (4 * 4 * 8 + 3, ["fusion", "x"], "")
