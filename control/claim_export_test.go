package control

// IsDialled says whether the address that leads to a connection is known, not only
// claimed by its peer.
func IsDialled(c *Conn) bool {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return c.s.Peer.Dialled
}
