"""A verifier process that loads its model for ever, with threads that the interpreter waits for, as
transformers does."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from specmesh.serving.process.command_line import parse
from specmesh.serving.process.server import serve
from specmesh.verifier.__main__ import VerifierService, VerifierSettings


class LoadingService(VerifierService):
    def load(self):
        logging.getLogger("test").warning("loading")
        with ThreadPoolExecutor() as pool:
            pool.submit(time.sleep, 1e6).result()


if __name__ == "__main__":
    settings = parse(VerifierSettings, sys.argv[1:], "loading-verifier")
    sys.exit(asyncio.run(serve(settings, LoadingService(settings))))
