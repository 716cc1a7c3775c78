"""The build copies configs/ into the package, so that `--config demo` works without a checkout."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    """The ordinary build, then the copy. An editable installation reads configs/ itself."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib) / "zoerefine" / "configs"
            shutil.copytree("configs", folder, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithConfigs})
