"""The lab and the stacks of these tests: a lab instance, a state and a stack file of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.deployment import Deployment
from lab.images import fake_model, stub
from lab.instance import Lab
from tests.deployment.stack import settle, stack_on
from tests.instances import fresh


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    yield from fresh("stacks", image=stub)


@pytest.fixture(scope="session")
def pair(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """The stub image on the head and its worker."""
    return configured(stack_on(lab, tmp_path_factory.mktemp("pair")))


@pytest.fixture
def deployed(pair: Deployment) -> Deployment:
    """The pair, up as its stack file says."""
    return settle(pair)


def configured(deployment: Deployment, *settings: str) -> Deployment:
    """A stack with the stub image on all nodes of its lab; not up yet."""
    lab = deployment.lab
    deployment.put_model(fake_model())
    image = lab.push(stub(lab.outer))
    deployment.configure(image, "vllm.env={}", "vllm.args={max-model-len: 512}", *settings)
    return deployment
