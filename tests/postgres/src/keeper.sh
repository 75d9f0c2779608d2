# Looks after one PostgreSQL server: makes it, does what standard input says, and takes everything away at its end.
# $1: folder of PostgreSQL's programs, $2: name of the databases' owner, $3: folder of the server that it follows, or nothing;
# $4: `durable` when commits are to reach the disk.
set -eu
programs=$1
owner=$2
primary=$3
if [ "$4" = durable ]; then disk=on; else disk=off; fi
umask 077
directory=$(mktemp -d "${TMPDIR:-/tmp}/postern-postgres-XXXXXX")

end() {
    # The server may have gone by itself and left its file behind: that must not keep the folder.
    thaw 2>/dev/null || true
    "$programs/pg_ctl" -D "$directory/data" -m immediate -w stop >/dev/null 2>&1 || true
    rm -rf "$directory"
}
start() {
    # The socket's folder is the server's only address. Nothing of a test has to outlive the machine.
    "$programs/pg_ctl" -D "$directory/data" -w -l "$directory/log" -o "-k $directory -c listen_addresses= \
        -c fsync=$disk -c full_page_writes=$disk -c max_connections=200 -c shared_buffers=16MB" start >/dev/null ||
        { cat "$directory/log" >&2; return 1; }
}
signal() {
    [ -e "$directory/data/postmaster.pid" ] || return 0
    server=$(head -n 1 "$directory/data/postmaster.pid")
    kill "-$1" "$server"
    pkill "-$1" --parent "$server" || true
}
freeze() { signal STOP; }
thaw() { signal CONT; }
stop() { "$programs/pg_ctl" -D "$directory/data" -m fast -w stop >/dev/null; }

crash() { "$programs/pg_ctl" -D "$directory/data" -m immediate -w stop >/dev/null; }

promote() { "$programs/pg_ctl" -D "$directory/data" -w promote >/dev/null; }

make() {
    if [ -n "$primary" ]; then
        "$programs/pg_basebackup" -h "$primary" -U "$owner" -D "$directory/data" --checkpoint=fast --wal-method=stream \
            --write-recovery-conf --no-sync
    else
        "$programs/initdb" -D "$directory/data" --auth=trust --encoding=UTF8 --locale=C --no-sync --username="$owner"
    fi
}

trap end EXIT
make >"$directory/log" 2>&1 ||
    { cat "$directory/log" >&2; exit 1; }
start
echo "$directory"
while read -r order; do
    case $order in start | stop | crash | freeze | thaw | promote) "$order" ;; *) exit 1 ;; esac
    echo done
done
