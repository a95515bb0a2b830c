// Package capture reads recordings of network traffic, as tcpdump and Wireshark write
// them, and puts the streams of TCP connections together.
//
//   - pcap.go and pcapng.go read the two file formats: a [Reader] gives packets.
//   - packet.go finds the TCP segment in a packet: Ethernet with VLAN tags, both forms of
//     Linux' "any", BSD loopback, raw IP; IPv4 and IPv6.
//   - streams.go is an [Assembler], which gives the bytes of each direction in order,
//     and says where bytes are missing.
//
// Nothing in a file is trusted: it is read with a bounded amount of memory, and what
// cannot be understood is passed over and counted, or an error. It is code of its own,
// as the formats are small, and the libraries that know a thousand others would be a
// dependency of everybody who uses the messenger.
package capture
