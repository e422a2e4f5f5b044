"""measure: times of compiled candidates on a device, as pure functions of plain values."""
