"""The file that a network of `gated_network` waits for."""

GATE = "ZOEREFINE_TEST_GATE"  # names it
