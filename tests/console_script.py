"""``specmesh``, for a nursery, which imports beforehand much of what its commands need."""

import runpy

from specmesh.cli.main import main

if __name__ == "__main__":
    main()
else:
    import specmesh.cli.app  # noqa: F401 - as main does

    for module in ("specmesh.load", "specmesh.orchestrator"):
        runpy.run_module(module, run_name=__name__)
