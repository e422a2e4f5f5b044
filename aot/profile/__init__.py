"""profile: how long each launch of a bundle takes here, against what the device can do."""
