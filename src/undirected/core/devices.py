"""What the machine's accelerator can do."""

import jax


def is_ampere() -> bool:
    """Whether programs run on an NVIDIA GPU, Ampere or later."""
    device = jax.devices()[0]
    version = getattr(device.client, "platform_version", "")
    # AMD's GPUs have names there, such as gfx942.
    cuda = device.platform == "gpu" and "cuda" in version
    return cuda and float(getattr(device, "compute_capability", None) or 0) >= 8
