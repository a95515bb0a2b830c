//go:build ignore

// The part of the kernel's eBPF interface that steer.c uses, spelled out so
// that the compiled bytes depend on the compiler alone and not on the headers
// of the machine that compiles. Layouts and numbers are the kernel's ABI.

#ifndef KERNEL_H
#define KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define SEC(name) __attribute__((section(name), used))
#define inline_always static inline __attribute__((always_inline))

// Fields of a map definition: the loader reads them from the type information.
#define number(name, value) int(*name)[value]
#define type_of(name, type) typeof(type) *name

enum {
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_REUSEPORT_SOCKARRAY = 20,
};

enum { SK_DROP = 0, SK_PASS = 1 };
enum { BPF_HDR_START_MAC = 0, BPF_HDR_START_NET = 1 };
enum { ETH_P_IP = 0x0800, ETH_P_IPV6 = 0x86dd };
enum { AF_INET = 2, AF_INET6 = 10 };

// A socket as programs may read it. Addresses and dst_port are in network
// byte order.
struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__u32 src_ip4;
	__u32 src_ip6[4];
	__u32 src_port;
	__u16 dst_port;
	__u16 reserved;
	__u32 dst_ip4;
	__u32 dst_ip6[4];
	__u32 state;
};

// The context of an SK_REUSEPORT program. data starts at the TCP header;
// eth_protocol is in network byte order.
struct sk_reuseport_md {
	union { void *data; __u64 data_u64; };
	union { void *data_end; __u64 data_end_u64; };
	__u32 len;
	__u32 eth_protocol;
	__u32 ip_protocol;
	__u32 bind_inany;
	__u32 hash;
	union { struct bpf_sock *sk; __u64 sk_u64; } __attribute__((aligned(8)));
	union { struct bpf_sock *migrating_sk; __u64 migrating_sk_u64; };
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_skb_load_bytes_relative)(const void *ctx, __u32 offset, void *to,
					   __u32 len, __u32 from) = (void *)68;
static long (*bpf_sk_select_reuseport)(void *ctx, void *map, void *key,
				       __u64 flags) = (void *)82;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define net16(x) ((__u16)__builtin_bswap16(x))
#define net32(x) ((__u32)__builtin_bswap32(x))
#else
#define net16(x) ((__u16)(x))
#define net32(x) ((__u32)(x))
#endif

#endif
