//go:build ignore

// Chooses the listener of an SO_REUSEPORT group for a new connection. Rules,
// first match wins: table by address and port, table by address, hint in the
// source port, CPU. A rule that names an empty slot is counted as a miss and
// the next rule is asked; when none is left the kernel's own hash decides.
// Nothing is ever dropped here. The cases of decide_test.go hold these rules.

#include "kernel.h"

enum rule { RULE_HASH, RULE_ADDR_PORT, RULE_ADDR, RULE_HINT, RULE_CPU, RULES };

// One word, so that a reader sees an old or a new policy, never a mixture:
// enabled rules (bit 1 << rule) 8 | first hinted port 16 | last 16 |
// cores 12 | core of this CPU 12. policy.go packs it.
struct policy {
	__u64 word;
	__u64 home; // core of this CPU when every core is live; for user space
};

struct addr { __u8 ip[16]; }; // IPv4 as ::ffff:a.b.c.d
struct addr_port {
	struct addr addr;
	__u16 port; // host byte order
	__u16 zero;
};

// Row 0 belongs to no core: kernel's hash, and misses that name no slot.
// Row c+1 belongs to core c.
struct counts {
	__u64 selected[RULES];
	__u64 missed[RULES];
	__u64 migrated; // part of selected that came from a closing listener
};

// The loader sets max_entries. Processes of different versions may share these
// maps: one whose content gets another meaning needs another name.
struct {
	number(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
	type_of(key, __u32);
	type_of(value, __u64);
	number(max_entries, 1);
} listeners SEC(".maps");
struct {
	number(type, BPF_MAP_TYPE_LRU_HASH);
	type_of(key, struct addr_port);
	type_of(value, __u32);
	number(max_entries, 1);
} by_addr_port SEC(".maps");
struct {
	number(type, BPF_MAP_TYPE_LRU_HASH);
	type_of(key, struct addr);
	type_of(value, __u32);
	number(max_entries, 1);
} by_addr SEC(".maps");
struct {
	number(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	type_of(key, __u32);
	type_of(value, struct policy);
	number(max_entries, 1);
} policies SEC(".maps");
struct {
	number(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	type_of(key, __u32);
	type_of(value, struct counts);
	number(max_entries, 1);
} counters SEC(".maps");

inline_always int map_v4(struct addr *a, __u32 ip)
{
	a->ip[10] = a->ip[11] = 0xff;
	__builtin_memcpy(&a->ip[12], &ip, 4);
	return 0;
}

// Peer of the packet that asks for a connection.
inline_always long read_packet(struct sk_reuseport_md *ctx, struct addr_port *peer)
{
	__u8 *tcp = ctx->data;
	__u32 ip = 0;

	if ((void *)(tcp + 2) > ctx->data_end)
		return -1;
	peer->port = tcp[0] << 8 | tcp[1];
	if (ctx->eth_protocol == net16(ETH_P_IPV6))
		return bpf_skb_load_bytes_relative(ctx, 8, &peer->addr, 16, BPF_HDR_START_NET);
	if (ctx->eth_protocol != net16(ETH_P_IP) ||
	    bpf_skb_load_bytes_relative(ctx, 12, &ip, 4, BPF_HDR_START_NET))
		return -1;
	return map_v4(&peer->addr, ip);
}

// Peer of a connection whose listener closes; there may be no packet.
inline_always long read_sock(struct bpf_sock *sk, struct addr_port *peer)
{
	__u32 ip[4];

	peer->port = net16(sk->dst_port);
	if (sk->family == AF_INET)
		return map_v4(&peer->addr, sk->dst_ip4);
	if (sk->family != AF_INET6)
		return -1;
	ip[0] = sk->dst_ip6[0];
	ip[1] = sk->dst_ip6[1];
	ip[2] = sk->dst_ip6[2];
	ip[3] = sk->dst_ip6[3];
	__builtin_memcpy(&peer->addr, ip, 16);
	return 0;
}

// Tries the slot of core; true when the connection has its listener.
inline_always int try_core(struct sk_reuseport_md *ctx, enum rule rule, __u32 core, int moving)
{
	__u32 row = core + 1;
	long err = bpf_sk_select_reuseport(ctx, &listeners, &core, 0);
	struct counts *c = bpf_map_lookup_elem(&counters, &row);

	if (!c) {
		row = 0;
		c = bpf_map_lookup_elem(&counters, &row);
	}
	if (c && err)
		c->missed[rule]++;
	if (c && !err) {
		c->selected[rule]++;
		c->migrated += moving;
	}
	return !err;
}

inline_always int steer(struct sk_reuseport_md *ctx, struct bpf_sock *moving)
{
	struct addr_port peer = {};
	__u32 zero = 0, *core, first, last, cores;
	struct policy *p = bpf_map_lookup_elem(&policies, &zero);
	__u64 w = p ? *(volatile __u64 *)&p->word : 0;

	if (w & (1 << RULE_ADDR_PORT | 1 << RULE_ADDR | 1 << RULE_HINT)) {
		if (moving ? read_sock(moving, &peer) : read_packet(ctx, &peer))
			goto cpu;
	}
	if (w & 1 << RULE_ADDR_PORT) {
		core = bpf_map_lookup_elem(&by_addr_port, &peer);
		if (core && try_core(ctx, RULE_ADDR_PORT, *core, !!moving))
			return SK_PASS;
	}
	if (w & 1 << RULE_ADDR) {
		core = bpf_map_lookup_elem(&by_addr, &peer.addr);
		if (core && try_core(ctx, RULE_ADDR, *core, !!moving))
			return SK_PASS;
	}
	first = w >> 8 & 0xffff;
	last = w >> 24 & 0xffff;
	cores = w >> 40 & 0xfff;
	if (w & 1 << RULE_HINT && cores && peer.port >= first && peer.port <= last &&
	    try_core(ctx, RULE_HINT, peer.port % cores, !!moving))
		return SK_PASS;
cpu:
	// A move runs on the CPU that closed the listener, which says nothing
	// about the connection.
	if (w & 1 << RULE_CPU && !moving && try_core(ctx, RULE_CPU, w >> 52, 0))
		return SK_PASS;

	struct counts *none = bpf_map_lookup_elem(&counters, &zero);
	if (none) {
		none->selected[RULE_HASH]++;
		none->migrated += !!moving;
	}
	return SK_PASS;
}

SEC("sk_reuseport/migrate") int steer_migrate(struct sk_reuseport_md *ctx)
{
	return steer(ctx, ctx->migrating_sk);
}

// For kernels before 5.14, which cannot move waiting connections.
SEC("sk_reuseport") int steer_plain(struct sk_reuseport_md *ctx)
{
	return steer(ctx, (void *)0);
}

char _license[] SEC("license") = "Apache-2.0";
