"""What pyproject.toml cannot say: the wheel carries the examples, for ``blocc examples``."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithExamples(build_py):
    """The package, and ``examples/`` as ``blocc/examples/``."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # the examples are read where they are
            return
        for pattern in ("*.py", "*.toml", "gallery/*.py"):
            for path in sorted(Path("examples").glob(pattern)):
                target = Path(self.build_lib, "blocc", path)
                self.mkpath(str(target.parent))
                self.copy_file(str(path), str(target))


setup(cmdclass={"build_py": BuildWithExamples})
