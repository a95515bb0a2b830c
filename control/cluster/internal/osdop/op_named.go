package osdop

import (
	"slices"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// xattr makes an operation on an attribute.
func xattr(code uint16, name string, value []byte) Op {
	op := Op{Code: code, Data: append([]byte(name), value...)}
	le.PutUint32(op.Args[0:], uint32(len(name)))
	le.PutUint32(op.Args[4:], uint32(len(value)))
	return op
}

// GetXattr asks for the value of an attribute; ENODATA: there is none.
func GetXattr(name string) Op { return xattr(CodeGetXattr, name, nil) }

// GetXattrs asks for all attributes (MapOutput).
func GetXattrs() Op { return Op{Code: CodeGetXattrs} }

// SetXattr sets an attribute.
func SetXattr(name string, value []byte) Op { return xattr(CodeSetXattr, name, value) }

// RemoveXattr removes an attribute.
func RemoveXattr(name string) Op { return xattr(CodeRmXattr, name, nil) }

// Comparisons, of the stored value with the one that is given.
const (
	Equal          uint8 = 1
	NotEqual       uint8 = 2
	Greater        uint8 = 3
	GreaterOrEqual uint8 = 4
	Less           uint8 = 5
	LessOrEqual    uint8 = 6
)

// CompareXattr has the request fail with ECANCELED unless an attribute compares to value; its result is 1 if it does.
func CompareXattr(name string, comparison uint8, value []byte) Op {
	op := xattr(CodeCmpXattr, name, value)
	op.Args[8], op.Args[9] = comparison, 1 // of bytes
	return op
}

// OmapKeys asks for at most limit keys behind one (KeysOutput).
func OmapKeys(after string, limit uint64) Op {
	return input(CodeOmapKeys, le.AppendUint64(wire.AppendString(nil, after), limit))
}

// OmapVals asks for at most limit keys behind one that begin with prefix, and for their values (OmapOutput).
func OmapVals(after, prefix string, limit uint64) Op {
	return input(CodeOmapVals, wire.AppendString(le.AppendUint64(wire.AppendString(nil, after), limit), prefix))
}

// OmapByKeys asks for the values of those keys that there are (MapOutput).
func OmapByKeys(keys []string) Op { return input(CodeOmapByKeys, appendStrings(nil, keys)) }

// OmapHeader asks for the header of the omap.
func OmapHeader() Op { return Op{Code: CodeOmapHeader} }

// OmapCompare has the request fail with ECANCELED unless a value of the omap compares to one: Equal, Less, or Greater.
func OmapCompare(key string, comparison uint8, value []byte) Op {
	b := wire.AppendString(le.AppendUint32(nil, 1), key)
	b = wire.AppendBlob(b, value)
	return input(CodeOmapCmp, le.AppendUint32(b, uint32(comparison)))
}

// OmapSet sets values of the omap.
func OmapSet(values map[string][]byte) Op {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	b := le.AppendUint32(nil, uint32(len(keys)))
	for _, key := range keys {
		b = wire.AppendBlob(wire.AppendString(b, key), values[key])
	}
	return input(CodeOmapSet, b)
}

// OmapSetHeader sets the header of the omap.
func OmapSetHeader(header []byte) Op { return input(CodeOmapSetHead, header) }

// OmapClear removes all of the omap.
func OmapClear() Op { return Op{Code: CodeOmapClear} }

// OmapRemove removes keys.
func OmapRemove(keys []string) Op { return input(CodeOmapRemove, appendStrings(nil, keys)) }

// OmapRemoveRange removes the keys from one up to another, which stays.
func OmapRemoveRange(from, to string) Op {
	return input(CodeOmapRmRange, wire.AppendString(wire.AppendString(nil, from), to))
}

func appendStrings(dst []byte, list []string) []byte {
	dst = le.AppendUint32(dst, uint32(len(list)))
	for _, s := range list {
		dst = wire.AppendString(dst, s)
	}
	return dst
}

// MaxClassName bounds the names of classes and methods, in bytes.
const MaxClassName = 255

// Call calls a method of a class of the OSD. Its names have at most MaxClassName bytes (Request.Append).
func Call(class, method string, in []byte) Op {
	op := Op{Code: CodeCall, Data: append(append([]byte(class), method...), in...)}
	op.Args[0], op.Args[1] = uint8(min(len(class), MaxClassName)), uint8(min(len(method), MaxClassName))
	le.PutUint32(op.Args[3:], uint32(len(in)))
	if len(class) > MaxClassName || len(method) > MaxClassName {
		op.Code = 0 // Append refuses it
	}
	return op
}

// The kinds of a watch operation.
const (
	WatchEnd       uint8 = 0
	WatchBegin     uint8 = 3
	WatchReconnect uint8 = 5
	WatchPing      uint8 = 7
)

// Watch begins, goes on with or ends a watch. generation counts the times that it had to be registered again; timeout is in
// seconds, 0: the OSD's default.
func Watch(cookie uint64, what uint8, generation, timeout uint32) Op {
	op := extent(CodeWatch, cookie, 0, nil)
	op.Args[16] = what
	le.PutUint32(op.Args[17:], generation)
	le.PutUint32(op.Args[21:], timeout)
	return op
}

// Notify sends a payload to all watchers of the object. The answer has a notify id (NotifyOutput); WatchNotify follows
// with the cookie. timeout is in seconds, 0: the OSD's default.
func Notify(cookie uint64, timeout uint32, payload []byte) Op {
	b := le.AppendUint32(le.AppendUint32(nil, 1), timeout)
	op := extent(CodeNotify, cookie, 0, wire.AppendBlob(b, payload))
	return op
}

// NotifyAck answers an event of a watch.
func NotifyAck(notifyID, cookie uint64, reply []byte) Op {
	b := le.AppendUint64(le.AppendUint64(nil, notifyID), cookie)
	return Op{Code: CodeNotifyAck, Data: wire.AppendBlob(b, reply)}
}

// Watchers asks for the watchers of the object (WatchersOutput).
func Watchers() Op { return Op{Code: CodeWatchers} }

// ListSnaps asks for the clones of the object (SnapsOutput). Request.Snap is SnapDir.
func ListSnaps() Op { return Op{Code: CodeListSnaps} }

// CopyFrom makes the object a copy of another one of the same cluster at a snapshot, 0: the head. version is the user version
// that it must have, 0: any.
func CopyFrom(from Object, snap, version uint64) Op {
	if snap == 0 {
		snap = Head
	}
	return extent(CodeCopyFrom, snap, version, from.appendLocator(wire.AppendString(nil, from.Name)))
}

// List asks for at most limit objects from a position on (ListOutput). The request's Target has no name but a hash, that of
// the position. epoch is that of the map, 0: not said.
func List(from HObject, limit uint64, epoch uint32) Op {
	op := extent(CodeList, limit, uint64(epoch), nil)
	op.Data = from.AppendTo(nil)
	return op
}
