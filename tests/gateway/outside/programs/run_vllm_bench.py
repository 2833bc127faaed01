"""What ``vllm bench serve`` runs. vLLM's package for CPUs has another name than ``vllm``, for whose
version that command asks before anything else, and ends."""

from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
