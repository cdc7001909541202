"""The Long Range Arena benchmark: data, training loop, rows and the table made of them."""

from lra import installation

installation.check()
