"""What is asked of a device."""

from types import SimpleNamespace

import pytest

from undirected.core import devices


@pytest.mark.parametrize(
    ("platform", "version", "capability", "late"),
    [
        ("gpu", "cuda 13000", "9.0", True),
        ("gpu", "cuda 12000", "7.5", False),
        ("gpu", "rocm 60000", "gfx942", False),
        ("cpu", "cpu", None, False),
    ],
)
def test_ampere_and_later_gpus_of_one_make(monkeypatch, platform, version, capability, late):
    device = SimpleNamespace(platform=platform, client=SimpleNamespace(platform_version=version))
    if capability is not None:
        device.compute_capability = capability
    monkeypatch.setattr(devices.jax, "devices", lambda: [device])
    assert devices.is_ampere() is late
