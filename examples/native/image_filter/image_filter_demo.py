"""Blurs and brightens a picture by the library beside this file."""

import numpy

from aotc import runtime

filters = runtime.get_backend("image_filter")
picture = numpy.random.default_rng(0).integers(0, 256, (48, 64, 3), numpy.uint8)
out = numpy.empty_like(picture)

filters.box_blur(picture, 2, out=out)
assert abs(out.mean() - picture.mean()) < 2
assert out.std() < picture.std()

half = picture[:, ::2]  # the filters take pictures with gaps between their pixels
small = numpy.empty(half.shape, numpy.uint8)
filters.adjust_gamma(half, 0.5, out=small)
assert (small >= half).all()
print(f"{filters}: blurred {picture.shape}, brightened {half.shape}")
