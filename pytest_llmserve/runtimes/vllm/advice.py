"""What to write instead of a flag that a version has removed."""

from __future__ import annotations

from typing import Final

# Sources: the deprecation notes in vLLM's own argument help, releases 0.8.5 to 0.33.0.
INSTEAD: Final = {
    "--compilation-config": "-cc or --compilation-config for JSON, -O2 for a level",
    "-O": "-cc or --compilation-config for JSON, -O2 for a level",
    "--cuda-graph-sizes": "--cudagraph-capture-sizes",
    "--disable-log-requests": "delete it: requests are logged only with --enable-log-requests",
    "--disable-mm-preprocessor-cache": "--mm-processor-cache-gb 0",
    "--device": "delete it: the platform is found at start",
    "--enable-multimodal-encoder-data-parallel": "--mm-encoder-tp-mode data",
    "--enable-reasoning": "delete it: --reasoning-parser alone is enough",
    "--eplb-log-balancedness": "--eplb-config '{\"log_balancedness\": true}'",
    "--eplb-step-interval": "--eplb-config '{\"step_interval\": N}'",
    "--eplb-window-size": "--eplb-config '{\"window_size\": N}'",
    "--num-redundant-experts": "--eplb-config '{\"num_redundant_experts\": N}'",
    "--guided-decoding-backend": '--structured-outputs-config \'{"backend": "..."}\'',
    "--max-num-partial-prefills": "delete it",
    "--max-seq-len-to-capture": "delete it: graphs are sized by --max-cudagraph-capture-size",
    "--num-scheduler-steps": "delete it: multi-step scheduling is gone",
    "--override-pooler-config": "--pooler-config",
    "--rope-scaling": "--hf-overrides '{\"rope_scaling\": {...}}'",
    "--rope-theta": "--hf-overrides '{\"rope_theta\": ...}'",
    "--speculative-model": '--speculative-config \'{"model": "...", ...}\'',
    "--num-speculative-tokens": "--speculative-config '{\"num_speculative_tokens\": N, ...}'",
    "--swap-space": "delete it: KV blocks are not swapped to the host any more",
    "--task": "--runner pooling, and --convert where the model is a generative one",
    "--use-v2-block-manager": "delete it",
    "--worker-use-ray": "--distributed-executor-backend ray",
    "--calculate-kv-scales": "delete it",
}
