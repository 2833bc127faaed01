"""Hold what k8s/ renders to checkov's policies: ``python -m tests.k8s.policies``.

Which of them are left out, and why, is in k8s/checkov.yaml.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.k8s.rendering import every_object
from tests.k8s.tools import BIN, K8S


def main() -> int:
    """The exit status of checkov."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "all.yaml").write_text("\n---\n".join(every_object()))
        # With --skip-download it asks nobody for anything.
        command = [BIN / "checkov", "--directory", folder, "--config-file", K8S / "checkov.yaml"]
        return subprocess.run([*command, "--skip-download"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
