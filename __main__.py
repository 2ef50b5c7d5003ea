"""One large language model across DGX Sparks: settings in, components wired, outputs out."""

import asyncio

import pulumi

from components.gate import BeforeChange, BeforeStop
from components.image import Image
from components.model import Model
from components.network import Network
from components.node import Node
from components.peers import Peers
from components.ray import Cluster
from components.removal import Removal
from components.settings import advise, load, require_pins
from components.vllm import Vllm

settings, secrets = load()
for sentence in require_pins(settings, secrets):
    pulumi.log.warn(sentence)
    if not pulumi.runtime.is_dry_run():
        raise pulumi.RunError(sentence)
for sentence in advise(settings, secrets):
    pulumi.log.warn(sentence)

head = Node(settings.head, deployment=settings)
workers = [
    Node(worker, deployment=settings, jump=head if worker.ssh.jump else None) for worker in settings.workers
]
nodes = [head, *workers]

image = Image(settings, secrets, head)
before_change = BeforeChange(settings, secrets, nodes, image)
network = Network(settings, nodes, after=[before_change.passed])
for node in nodes:
    node.add_scratch(after=network.links)
peers = Peers(settings, nodes, after=network.links)
image.spread(nodes, peers, after=network.links)
model = Model(settings, secrets, nodes, peers, after=[before_change.passed])
removal = Removal(settings, nodes, after=network.links)
before_stop = BeforeStop(settings, nodes, network=network, image=image, model=model, removal=removal)
cluster = Cluster(settings, secrets, nodes, after=before_stop.passed)
vllm = Vllm(settings, secrets, nodes, cluster, after=before_stop.passed)

pulumi.export("endpoint", vllm.endpoint)
pulumi.export("model", settings.vllm.served_model_name)
pulumi.export("nodes", [node.name for node in nodes])
pulumi.export("image", settings.image.ref)
pulumi.export("executor", str(settings.ranks_over or "none"))
pulumi.export("loadSeconds", vllm.load_seconds)
pulumi.export("versions", {"vllm": before_change.vllm_version, "ray": before_change.ray_version})


async def registered() -> None:
    """Let every registration begin: those that Pulumi's SDK finds begun at its end cost it linear time."""
    await asyncio.sleep(0)


pulumi.run(registered)
