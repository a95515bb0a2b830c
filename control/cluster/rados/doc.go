// Package rados is a client of a cluster's object store, RADOS, over a messenger. It is pure Go: no librados, no cgo, and no
// goroutine or thread for an operation.
//
// [Dial] connects and returns a [Cluster]; a program that has a messenger of its own uses [New]. Cluster.Pool finds a [Pool], a
// cheap value from which others are derived: with a namespace, a locator, a snapshot to read, the snapshots that
// writes keep, or flags. Pool.Object names an [Object], whose methods are operations:
//
//	pool, err := cluster.Pool(ctx, "data")
//	o := pool.WithNamespace("invoices").Object("2026-11")
//	err = o.Append(ctx, line)
//	text, err := o.ReadAll(ctx)
//
// Several steps on one object, which happen together or not at all, are a [ReadOp] or a [WriteOp], carried out by Object.Operate,
// or by Object.Start for callers that have no goroutine to wait. Object.File has the interfaces of package io.
// Pool.Objects lists a namespace, and Pool.Cursors cuts a list into parts for several goroutines.
//
// # Behaviour
//
// The client holds the map of the cluster and places each operation itself. An operation waits for an OSD that can
// serve it, is sent again where the map has its object move or a connection breaks, and is carried out at most once, whatever
// happens: an append is never there twice. Operations of one goroutine on one object keep their order. Nothing ends by itself:
// a context bounds how long an operation waits. What is under way is bounded (Options); others wait in line.
//
// # Errors
//
// All errors of operations are an *[Error], which tells the object, its pool and the OSD, and wraps two others. One is the outcome:
// [ErrNotSent] and [ErrRefused] say that nothing has changed, [ErrUnknown] that nobody knows. The other is
// the reason: an errno of the cluster (errors.Is with syscall.ENOENT, or fs.ErrNotExist), or the cause of the context; the text
// then says what was waited for. Data that was given to a write belongs to the caller again, but never after ErrUnknown.
//
// # For users of go-ceph
//
//	go-ceph: Conn                             here
//	NewConnWithUser, ReadConfigFile, Connect  Dial, with a Config; nothing is read from files
//	Shutdown                                  Cluster.Close
//	GetFSID                                   Cluster.Mon().MonMap().FSID
//	MonCommand, MonCommandWithInputBuffer     Cluster.Mon().Command, CommandWith
//	ListPools, MakePool, DeletePool           Cluster.Pools, CreatePool, Pool.Delete
//	OpenIOContext, GetPoolByName              Cluster.Pool, Pool.ID
//	GetClusterStats, GetPoolStats             Cluster.Mon().Command of "df", as JSON
//	MgrCommand, OsdCommand, PGCommand         nothing: only monitors are asked
//
//	go-ceph: IOContext                        here
//	SetNamespace, SetLocator                  Pool.WithNamespace, WithLocator: they return another Pool
//	Read, Write, WriteFull, Append            Object.ReadInto, Write, WriteFull, Append
//	Truncate, Delete, Stat                    Object.Truncate, Remove, Stat
//	GetXattr, SetXattr, RmXattr, ListXattrs   Object.Xattr, SetXattr, RemoveXattr, Xattrs
//	SetOmap, RmOmapKeys, CleanOmap            Object.SetOmap, RemoveOmap, ClearOmap
//	ListOmapValues, GetOmapValues             Object.Omap, an iterator over all pages
//	ListObjects, Iter                         Pool.Objects, an iterator
//	LockExclusive, LockShared                 Object.Lock
//	Unlock, ListLockers, BreakLock            Object.Unlock, Lockers, BreakLock
//	CreateSnap, RemoveSnap                    Pool.CreateSnap, RemoveSnap
//	ListSnaps, LookupSnap                     Pool.Snaps, LookupSnap; names and times come with them
//	RollbackSnap, SetReadSnap                 Object.Rollback, Pool.WithSnap
//	Watch, Notify                             Object.Watch, Notify; a watch is renewed by itself
//	Watcher: Events, Errors, Check            Handler.Notified, whose result is the Ack; Lost; Watch.Confirmed
//	Checksum                                  Object.Checksum
//	Alignment, RequiresAlignment              nothing
//	GetLastVersion                            the version that Object.Operate returns
//
//	go-ceph: ReadOp, WriteOp                  here
//	CreateReadOp, CreateWriteOp, Release      the zero values of ReadOp and WriteOp; nothing is to be released
//	AssertExists, AssertVersion               the same of ReadOp and WriteOp
//	Read, GetOmapValues, its ByKeys           ReadOp.Read, Omap, OmapByKeys
//	Create, CmpExt, SetAllocationHint         WriteOp.Create, CompareExtent, AllocHint
//	Exec, and Bytes of its step               ReadOp.Exec, Result.Value
//	OperateWithFlags                          Pool.WithFlags
//	ErrNotFound, ErrObjectExists, ...         errors.Is with fs.ErrNotExist, fs.ErrExist, syscall.ENODATA, ...
//
// Different: each call takes a context, and without a deadline waits as librados does. A read of more than an object has is no
// error, and File.ReadAt returns io.EOF with it. Large reads and writes are cut in pieces (PieceSize). The version of an
// object comes with the operation, not from a state that all goroutines share. CompareExtent tells the byte that differs by
// a *MismatchError.
package rados
