package localsock

// BindPrivate is how Listen makes its socket.
var BindPrivate = bindPrivate
