package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// connMetrics are sums over the connections with peers of one type, in one state.
type connMetrics struct{ conns, queued, sent, held, reserved *prometheus.Desc }

// connSum are the sums of one type and state.
type connSum struct{ conns, queued, sent, held, reserved float64 }

func newConnMetrics(labels prometheus.Labels) *connMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("ringmsgr_peers_"+name, help, []string{"peer_type", "state"}, labels)
	}
	return &connMetrics{
		conns:    desc("connections", "Connections with peers."),
		queued:   desc("queued_messages", "Messages that wait to be sent."),
		sent:     desc("unacknowledged_messages", "Messages that were sent and are not acknowledged."),
		held:     desc("held_bytes", "Payload that is held to be sent, or until it is acknowledged."),
		reserved: desc("received_bytes", "Received payload that is not released."),
	}
}

func (c *connMetrics) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.conns, c.queued, c.sent, c.held, c.reserved} {
		out <- d
	}
}

func (c *connMetrics) collect(out chan<- prometheus.Metric, m *control.Messenger) {
	s, err := m.Snapshot()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.conns, err)
		return
	}
	c.show(out, s.Conns)
}

func (c *connMetrics) show(out chan<- prometheus.Metric, conns []control.ConnStats) {
	sums := make(map[[2]string]connSum)
	for i := range conns {
		st := &conns[i]
		if st.ID == 0 {
			continue // it has just ended
		}
		key := [2]string{knownType(st.PeerType), st.State}
		sum := sums[key]
		sum.conns++
		sum.queued += float64(st.IO.Queued)
		sum.sent += float64(st.IO.Sent)
		sum.held += float64(st.HeldBytes)
		sum.reserved += float64(st.IO.Reserved)
		sums[key] = sum
	}
	for key, sum := range sums {
		for desc, n := range map[*prometheus.Desc]float64{c.conns: sum.conns, c.queued: sum.queued, c.sent: sum.sent, c.held: sum.held, c.reserved: sum.reserved} {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, n, key[0], key[1])
		}
	}
}

// otherType is the label of peers whose type the protocol does not have. The peer chooses the
// byte of its type: without this label it could make hundreds of series.
const otherType = "other"

func knownType(name string) string {
	if _, err := wire.ParseEntityType(name); name != "" && err != nil {
		return otherType
	}
	return name
}
