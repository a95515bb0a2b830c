package simnet

// InFlight is the number of requests that have not ended.
func (k *Disk) InFlight() int { return len(k.flying) }
