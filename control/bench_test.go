package control_test

import (
	"github.com/ringmsgr/ringmsgr/control"
)

func echo(c *control.Conn, m *control.Message) bool {
	m.Retain()
	if err := c.Send(m); err != nil {
		m.Release()
	}
	return true
}
