# Carries out operations by librados: CONF POOL are its arguments. Each line of standard input has a command in JSON, for
# which standard output gets its outcome. Bytes are in base64.
import base64
import ctypes as c
import json
import struct
import sys

lib = c.CDLL("librados.so.2")
ptr, u64, size, byref = c.c_void_p, c.c_uint64, c.c_size_t, c.byref
lib.rados_create_write_op.restype = lib.rados_create_read_op.restype = ptr
lib.rados_get_last_version.restype = u64
cluster, io = ptr(), ptr()
snaps = []


def must(r):
    if r < 0:
        sys.exit("librados: errno %d" % -r)
    return r


def listed(keys):
    """The arguments of a list of strings: strings, lengths."""
    return (c.c_char_p * len(keys))(*keys), (size * len(keys))(*map(len, keys))


class Op:
    """A compound operation. results has a function for each step with output, which returns errno and outputs."""

    def __init__(self, kind):
        self.kind, self.results = kind, []
        self.op = ptr(getattr(lib, "rados_create_%s_op" % kind)())

    def __getattr__(self, name):
        f = getattr(lib, "rados_%s_op_%s" % (self.kind, name))
        return lambda *args: f(self.op, *args)

    def result(self, rval, outputs):
        self.results.append(lambda: {"Errno": abs(min(rval.value, 0)), "Outputs": [] if rval.value < 0 else [text(b) for b in outputs()]})

    def pairs(self, it, values, more=None):
        key, val, klen, vlen = ptr(), ptr(), size(), size()
        while lib.rados_omap_get_next2(it, byref(key), byref(val), byref(klen), byref(vlen)) == 0 and key.value:
            yield c.string_at(key, klen.value)
            if values:
                yield c.string_at(val, vlen.value) if vlen.value else b""
        if more is not None:
            yield b"more" if more.value else b"end"

    def add(self, kind, s):
        d, key, to, at, n = s["Data"], s["Key"], s["To"], u64(s["Offset"]), s["Number"]
        rval, it, more = c.c_int(), ptr(), c.c_ubyte()
        if kind == "assert exists":
            self.assert_exists()
        elif kind == "assert version":
            self.assert_version(u64(n))
        elif kind == "compare extent":
            self.cmpext(d, size(len(d)), at, None)
        elif kind == "compare xattr":
            self.cmpxattr(key, c.c_uint8(n), d, size(len(d)))
        elif kind == "compare omap":
            self.omap_cmp2(key, c.c_uint8(n), d, size(len(key)), size(len(d)), None)
        elif self.kind == "write":
            self.change(kind, d, key, to, at, n)
        elif kind == "read":
            buf, got = c.create_string_buffer(max(n, 1)), size()
            self.read(at, size(n), buf, byref(got), byref(rval))
            self.result(rval, lambda: [buf.raw[:got.value]])
        elif kind == "stat":
            length, mtime = u64(), c.c_long()
            self.stat(byref(length), byref(mtime), byref(rval))
            self.result(rval, lambda: [b"%d at %d" % (length.value, min(mtime.value, 1001000000))])
        elif kind == "xattrs":
            self.getxattrs(byref(it), byref(rval))
            self.result(rval, lambda: attributes(it))
        elif kind == "checksum":
            out, seed = c.create_string_buffer(1024), d[:8] if to == b"Q" else d[:4]
            self.checksum(c.c_int({b"I": 2, b"Q": 1}[to]), seed, size(len(seed)), at, size(n), size(0), out, size(1024), byref(rval))
            self.result(rval, lambda: [b"%d" % v for v in struct.unpack_from("<I" + to.decode(), out)][: 2 * out.raw[0]])
        elif kind == "call":
            out, length = ptr(), size()
            self.exec(b"hello", key, d, size(len(d)), byref(out), byref(length), byref(rval))
            self.result(rval, lambda: [c.string_at(out, length.value) if length.value else b""])
        elif kind == "omap":
            self.omap_get_vals2(key, to, u64(n), byref(it), byref(more), byref(rval))
            self.result(rval, lambda: self.pairs(it, True, more))
        elif kind == "omap keys":
            self.omap_get_keys2(key, u64(n), byref(it), byref(more), byref(rval))
            self.result(rval, lambda: self.pairs(it, False, more))
        elif kind == "omap by keys":
            keys, lens = listed([key, to])
            self.omap_get_vals_by_keys2(keys, size(2), lens, byref(it), byref(rval))
            self.result(rval, lambda: self.pairs(it, True))
        else:
            sys.exit("no step " + kind)

    def change(self, kind, d, key, to, at, n):
        if kind == "create":
            self.create(c.c_int(n), None)
        elif kind == "write":
            self.write(d, size(len(d)), at)
        elif kind == "write full":
            self.write_full(d, size(len(d)))
        elif kind == "append":
            self.append(d, size(len(d)))
        elif kind == "write same":
            self.writesame(d, size(len(d)), size(n), at)
        elif kind == "zero":
            self.zero(at, u64(n))
        elif kind == "truncate":
            self.truncate(at)
        elif kind == "remove":
            self.remove()
        elif kind == "set xattr":
            self.setxattr(key, d, size(len(d)))
        elif kind == "remove xattr":
            self.rmxattr(key)
        elif kind == "set omap":
            keys, klens = listed([key, to])
            values, vlens = listed([d, d + b"2"])
            self.omap_set2(keys, values, klens, vlens, size(2))
        elif kind == "remove omap":
            keys, lens = listed([key, to])
            self.omap_rm_keys2(keys, lens, size(2))
        elif kind == "remove omap range":
            self.omap_rm_range2(key, size(len(key)), to, size(len(to)))
        elif kind == "clear omap":
            self.omap_clear()
        elif kind == "hint":
            self.set_alloc_hint(u64(n), u64(n))
        elif kind == "call":
            self.exec(b"hello", key, d, size(len(d)), None)
        else:
            sys.exit("no step " + kind)


def raw(s):
    return base64.b64decode(s or "")


def text(data):
    return base64.b64encode(data).decode()


def attributes(it):
    name, val, length = ptr(), ptr(), size()
    while lib.rados_getxattrs_next(it, byref(name), byref(val), byref(length)) == 0 and name.value:
        yield c.string_at(name)
        yield c.string_at(val, length.value) if length.value else b""


def objects():
    ctx, name, key, ns = ptr(), ptr(), ptr(), ptr()
    lens = size(), size(), size()
    must(lib.rados_nobjects_list_open(io, byref(ctx)))
    found = []
    while lib.rados_nobjects_list_next2(ctx, byref(name), byref(key), byref(ns), *map(byref, lens)) == 0:
        found.append(b"/".join(c.string_at(p, n.value) if p.value else b"" for p, n in zip((ns, name, key), (lens[2], lens[0], lens[1]))))
    lib.rados_nobjects_list_close(ctx)
    return [text(b) for b in sorted(found)]


def run(a):
    """Returns a result, negative for an errno, and results with their outputs."""
    kind, name, key, data, n = a["Kind"], a["Object"], a["Key"], a["Data"], a["Number"]
    if kind == "list":
        lib.rados_ioctx_set_namespace(io, b"\x01")
        lib.rados_ioctx_snap_set_read(io, u64(2**64 - 2))
        return 0, [{"Errno": 0, "Outputs": objects()}]
    lib.rados_ioctx_set_namespace(io, a["Namespace"].encode())
    lib.rados_ioctx_locator_set_key(io, a["Locator"].encode() or None)
    ids = sorted(snaps, reverse=True)
    must(lib.rados_ioctx_selfmanaged_snap_set_write_ctx(io, u64(max(ids, default=0)), (u64 * len(ids))(*ids), c.c_int(len(ids))))
    lib.rados_ioctx_snap_set_read(io, u64(snaps[a["Snap"]] if a["Snap"] >= 0 and kind != "rollback" else 2**64 - 2))
    if kind in ("write", "read"):
        op = Op(kind)
        for s in a["Steps"]:
            op.add(s["Kind"], s)
        mtime = (byref(c.c_long(a["Time"])),) if kind == "write" else ()
        r = op.operate(io, name, *mtime, c.c_int(0))
        found = [f() for f in op.results]
        getattr(lib, "rados_release_%s_op" % kind)(op.op)
        return r, found
    buf = c.create_string_buffer(max(n, 4096))
    if kind == "data":
        r = lib.rados_read(io, name, buf, size(n), u64(a["Offset"]))
    elif kind == "xattr":
        r = lib.rados_getxattr(io, name, key, buf, size(len(buf)))
    elif kind == "call":
        r = lib.rados_exec(io, name, b"hello", key, data, size(len(data)), buf, size(len(buf)))
    elif kind == "remove":
        return lib.rados_remove(io, name), []
    elif kind == "lock":
        return lib.rados_lock_shared(io, name, b"lock", key, b"tag", b"", None, c.c_uint8(n)), []
    elif kind == "lock exclusively":
        return lib.rados_lock_exclusive(io, name, b"lock", key, b"", None, c.c_uint8(n)), []
    elif kind == "unlock":
        return lib.rados_unlock(io, name, b"lock", key), []
    elif kind == "snap":
        snap = u64()
        must(lib.rados_ioctx_selfmanaged_snap_create(io, byref(snap)))
        snaps.append(snap.value)
        return 0, []
    elif kind == "rollback":
        return lib.rados_ioctx_selfmanaged_snap_rollback(io, name, u64(snaps[a["Snap"]])), []
    else:
        sys.exit("no operation " + kind)
    return r, [{"Errno": abs(min(r, 0)), "Outputs": [text(buf.raw[:r])] if r >= 0 else []}]


must(lib.rados_create2(byref(cluster), b"ceph", b"client.admin", u64(0)))
must(lib.rados_conf_read_file(cluster, sys.argv[1].encode()))
must(lib.rados_connect(cluster))
must(lib.rados_ioctx_create(cluster, sys.argv[2].encode(), byref(io)))
for line in sys.stdin:
    action = json.loads(line)
    for part in [action] + (action["Steps"] or []):
        for field in ("Object", "Key", "To", "Data"):
            if field in part:
                part[field] = raw(part[field])
    result, results = run(action)
    version = lib.rados_get_last_version(io) if action["Kind"] in ("write", "read", "xattr", "call") else 0
    print(json.dumps({"Errno": abs(min(result, 0)), "Version": version, "Results": results}), flush=True)
