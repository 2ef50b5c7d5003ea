"""`make demo`: two simulated Sparks, the real engine, real Ray and real vLLM, and one chat completion."""

from __future__ import annotations

import os
import sys
import time

import httpx

from lab.deployment import ROOT, Deployment
from lab.engine.errors import EngineError
from lab.environment import environment
from lab.images import real, tiny_model
from lab.instance import Lab
from lab.shell import LabError, heed_interrupts, say

# One CPU serves both nodes of the lab; a small cache and few sequences keep it light.
REAL_SETTINGS: tuple[str, ...] = (
    "vllm.args.max-model-len=512",
    "vllm.args.max-num-seqs=4",
    "vllm.reasoningParser=qwen3",
    'vllm.env.VLLM_CPU_KVCACHE_SPACE="1"',
)
GOING_ON = """
How to go on:
  eval "$(make -s env)"                            then plain pulumi works in this shell
  curl -H "Authorization: Bearer $(pulumi config get apiKey --stack lab)" {endpoint}/models
  $EDITOR Pulumi.lab.yaml                          change a flag, for example max-num-seqs
  pulumi preview --stack lab --diff                see what would restart, and what would not
  pulumi up --stack lab                            do it
  pulumi destroy --stack lab && make lab-down      take it all down
"""


def main() -> None:
    """Bring everything up and ask the model something."""
    started = time.monotonic()
    lab = Lab()
    lab.up()
    deployment = Deployment(lab, "lab", environment(lab), ROOT / "Pulumi.lab.yaml")
    if deployment.forget_other_nodes():
        say("Pulumi.lab.yaml was of nodes that are gone: stack lab begins anew")
    deployment.put_model(tiny_model(lab.outer))
    deployment.configure(lab.push(real(lab.outer)), *REAL_SETTINGS)
    say("pulumi up --stack lab")
    if deployment.pulumi("up", "--refresh", show=True).status:
        raise LabError("pulumi up failed; what it said stands above. Mend it, and run make demo again.")
    endpoint = deployment.output("endpoint")
    question = "Say hello."
    answer = httpx.post(
        f"{endpoint}/chat/completions",
        json={"model": "tiny", "max_tokens": 16, "messages": [{"role": "user", "content": question}]},
        headers={"Authorization": f"Bearer {deployment.api_key()}"},
        timeout=120,
    )
    answer.raise_for_status()
    message = answer.json()["choices"][0]["message"]
    words = message.get("content") or message.get("reasoning") or message.get("reasoning_content")
    print(f"\nendpoint  {endpoint}\nmodel     tiny (random weights: it speaks, but makes no sense)")
    print(f"question  {question}\nanswer    {words!r}\ntook      {time.monotonic() - started:.0f} s")
    print(GOING_ON.format(endpoint=endpoint))


if __name__ == "__main__":
    os.chdir(ROOT)
    heed_interrupts()
    try:
        main()
    except (LabError, EngineError, httpx.HTTPError) as error:
        sys.exit(f"error: {error}")
