"""Programs that are split over several GPUs: which part of each value a rank has."""
