# Looks after one PostgreSQL server: makes it, does what standard input says, and takes everything away at its end.
# $1: folder of PostgreSQL's programs, $2: name of the databases' owner.
set -eu
programs=$1
owner=$2
umask 077
directory=$(mktemp -d "${TMPDIR:-/tmp}/postern-postgres-XXXXXX")

end() {
    # The server may have gone by itself and left its file behind: that must not keep the folder.
    thaw 2>/dev/null || true
    for data in "$directory/data" "$directory/replica/data"; do
        "$programs/pg_ctl" -D "$data" -m immediate -w stop >/dev/null 2>&1 || true
    done
    rm -rf "$directory"
}
# $1: folder of the socket and the log, with the data below it. The socket's folder is the server's only address. Nothing here
# has to outlive the machine.
start_in() {
    "$programs/pg_ctl" -D "$1/data" -w -l "$1/log" -o "-k $1 -c listen_addresses= \
        -c fsync=off -c full_page_writes=off -c max_connections=200 -c shared_buffers=16MB" start >/dev/null ||
        { cat "$1/log" >&2; return 1; }
}
start() { start_in "$directory"; }
sql() { "$programs/psql" --host="$directory" --username="$owner" --no-psqlrc --quiet --tuples-only --no-align --command="$1" postgres; }
# From now on nothing is committed that the copy has not.
replicate() {
    mkdir "$directory/replica"
    "$programs/pg_basebackup" -D "$directory/replica/data" --host="$directory" --username="$owner" \
        --write-recovery-conf --wal-method=stream --checkpoint=fast
    start_in "$directory/replica"
    sql "ALTER SYSTEM SET synchronous_standby_names = '*'"
    sql "SELECT pg_reload_conf()" >/dev/null
    while [ "$(sql 'SELECT sync_state FROM pg_stat_replication')" != sync ]; do sleep 0.05; done
}
promote() { "$programs/pg_ctl" -D "$directory/replica/data" -w promote >/dev/null; }
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

trap end EXIT
"$programs/initdb" -D "$directory/data" --auth=trust --encoding=UTF8 --locale=C --no-sync --username="$owner" >"$directory/log" 2>&1 ||
    { cat "$directory/log" >&2; exit 1; }
start
echo "$directory"
while read -r order; do
    case $order in start | stop | crash | freeze | thaw | replicate | promote) "$order" ;; *) exit 1 ;; esac
    echo done
done
