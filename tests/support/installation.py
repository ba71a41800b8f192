"""Makes a Python whose modules come from other directories, as a second installation of tiller."""

import sysconfig
import venv
from pathlib import Path


def make_installation(place: Path, *sources: Path) -> str:
    """Return a Python that imports from these directories before this one's packages."""
    venv.create(place, symlinks=True)
    packages = sysconfig.get_path("purelib", "venv", {"base": str(place)})
    lines = [*map(str, sources), sysconfig.get_path("purelib")]
    # A line that starts with `import` is executed. It finds what is installed in editable mode.
    lines.append(f"import site; site.addsitedir({lines[-1]!r})")
    Path(packages, "sources.pth").write_text("\n".join(lines))
    return str(place / "bin" / "python")
