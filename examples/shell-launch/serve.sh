#!/usr/bin/env bash
set -euo pipefail

export VLLM_LOGGING_LEVEL=INFO
MODEL=/models/assistant-3b
TP="${TP:-1}"

exec vllm serve "$MODEL" \
  --config engine.yaml \
  --tensor-parallel-size "$TP" \
  --served-model-name assistant
