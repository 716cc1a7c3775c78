"""Copies of runs in an object store or another folder: `zoerefine runs push` and `pull`.

    <URL>/<name>/<id>/manifest.json       the run's files with sizes and SHA-256; written last
    <URL>/<name>/<id>/objects/<sha256>    their contents, each one once

Objects are named by their content, so an archive that is replaced stays whole until its manifest
is. Nothing here imports torch.
"""

# What other packages import from here; the rest is this package's own.
OPEN = ("pull", "push", "remote")
