//! Decides which connections are served, and which one is closed if there are too many.
//!
//! A connection costs a descriptor and memory before its request arrives. Connections that wait for
//! a whole request are closed for newer ones, oldest first. A reserve beyond the limit serves
//! `/health/` only, so that monitors always get a response.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Connections beyond the limit that serve health checks only.
const RESERVED_CONNECTIONS: usize = 64;

/// Timeout for the head of a request on a reserve connection.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for the head of a request when most connections are in use.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which a peer may exceed its share of new connections, because a burst of them is normal.
const BURST: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionLimits {
    pub(super) total: usize,
    /// Maximum number of connections of one peer that have not sent a whole request.
    pub(super) new_per_peer: usize,
    pub(super) header_timeout: Duration,
}

#[derive(Debug)]
pub(super) struct Connections {
    limits: ConnectionLimits,
    table: Mutex<Table>,
    closed: AtomicU64,
    /// Signalled when a connection ends or may be closed.
    pub(super) ended: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    ordinary: Pool,
    reserve: Pool,
    /// The waiting ordinary connections that have not sent a whole request yet.
    new: BTreeMap<IpAddr, BTreeSet<u64>>,
}

/// Connections that share a limit.
#[derive(Debug, Default)]
struct Pool {
    open: usize,
    /// Connections that wait for a whole request, oldest first.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    peer: IpAddr,
    close: CancellationToken,
}

#[derive(Debug)]
pub(super) struct Connection {
    connections: Arc<Connections>,
    peer: IpAddr,
    is_reserve: bool,
    header_timeout: Duration,
    close: CancellationToken,
    /// Its key in [`Pool::waiting`] while it waits for a whole request.
    place: Mutex<Option<u64>>,
    answer: Mutex<Answer>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Answer {
    #[default]
    None,
    /// The body is still being made.
    Made,
    /// The connection may still buffer the end of the body.
    Buffered,
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Self> {
        let (table, closed) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { limits, table, closed, ended: tokio::sync::Notify::new() })
    }

    /// Accepts a connection. Returns `None` if even the reserve is full of requests in progress.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<Connection>> {
        let peer = peer_network(peer);
        let mut table = self.lock_table();
        let total = self.limits.total;
        let is_reserve = table.ordinary.open >= total && !self.evict_from(&mut table, false);
        if is_reserve
            && table.reserve.open >= RESERVED_CONNECTIONS
            && !self.evict_from(&mut table, true)
        {
            return None;
        }
        table.pool(is_reserve).open += 1;
        let header_timeout = match table.ordinary.open {
            _ if is_reserve => RESERVE_TIMEOUT,
            open if open > total / 4 * 3 => BUSY_TIMEOUT,
            _ => self.limits.header_timeout,
        };
        let connection = Connection {
            connections: Arc::clone(self),
            peer,
            is_reserve,
            header_timeout: header_timeout.min(self.limits.header_timeout),
            close: CancellationToken::new(),
            place: Mutex::default(),
            answer: Mutex::default(),
        };
        let place = table.wait(&connection, true);
        *connection.lock_place() = Some(place);
        self.evict_of(&mut table, peer);
        Some(Arc::new(connection))
    }

    pub(super) fn has_room(&self) -> bool {
        let table = self.lock_table();
        table.ordinary.open < self.limits.total
            || table.reserve.open < RESERVED_CONNECTIONS
            || !table.ordinary.waiting.is_empty()
            || !table.reserve.waiting.is_empty()
    }

    pub(super) fn format_metrics(&self) -> String {
        format!(
            "# HELP faber_connections_open Connections open now, WebSockets included.\n\
             # TYPE faber_connections_open gauge\n\
             faber_connections_open {}\n\
             # HELP faber_connections_closed_total Connections closed to make room for others.\n\
             # TYPE faber_connections_closed_total counter\n\
             faber_connections_closed_total {}\n",
            self.open(),
            self.closed.load(Ordering::Relaxed)
        )
    }

    fn open(&self) -> usize {
        let table = self.lock_table();
        table.ordinary.open + table.reserve.open
    }

    /// Closes the connection of a pool that has waited longest. Returns `false` if none waits.
    fn evict_from(&self, table: &mut Table, is_reserve: bool) -> bool {
        let oldest = table.pool(is_reserve).waiting.keys().next().copied();
        oldest.is_some_and(|place| self.evict_connection(table, place, is_reserve))
    }

    /// Closes the oldest new connections of a peer that has too many.
    fn evict_of(&self, table: &mut Table, peer: IpAddr) {
        while let Some(new) = table.new.get(&peer)
            && new.len() > self.limits.new_per_peer
            && let Some(place) = new.first().copied()
            && let Some(waiting) = table.ordinary.waiting.get(&place)
            && waiting.since.elapsed() >= BURST
        {
            self.evict_connection(table, place, false);
        }
    }

    fn evict_connection(&self, table: &mut Table, place: u64, is_reserve: bool) -> bool {
        let Some(evicted) = table.stop_waiting(place, is_reserve) else { return false };
        evicted.close.cancel();
        let closed = self.closed.fetch_add(1, Ordering::Relaxed) + 1;
        if closed.is_power_of_two() {
            tracing::warn!(
                closed,
                peer = %evicted.peer,
                "closed a connection that waited for a request or took none of its answer, to make \
                 room for others"
            );
        }
        true
    }

    fn lock_table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn pool(&mut self, is_reserve: bool) -> &mut Pool {
        if is_reserve { &mut self.reserve } else { &mut self.ordinary }
    }

    fn wait(&mut self, connection: &Connection, is_new: bool) -> u64 {
        let place = self.next;
        self.next += 1;
        let (peer, close) = (connection.peer, connection.close.clone());
        let waiting = Waiting { since: Instant::now(), peer, close };
        self.pool(connection.is_reserve).waiting.insert(place, waiting);
        if is_new && !connection.is_reserve {
            self.new.entry(peer).or_default().insert(place);
        }
        place
    }

    fn stop_waiting(&mut self, place: u64, is_reserve: bool) -> Option<Waiting> {
        let waiting = self.pool(is_reserve).waiting.remove(&place)?;
        if let Some(new) = self.new.get_mut(&waiting.peer) {
            new.remove(&place);
            if new.is_empty() {
                self.new.remove(&waiting.peer);
            }
        }
        Some(waiting)
    }
}

impl Connection {
    pub(super) fn is_reserve(&self) -> bool {
        self.is_reserve
    }

    pub(super) fn header_timeout(&self) -> Duration {
        self.header_timeout
    }

    pub(super) async fn closed(&self) {
        self.close.cancelled().await;
    }

    pub(super) fn is_answering(&self) -> bool {
        self.lock_place().is_none()
    }

    pub(super) fn request_arrived(&self) {
        let mut answer = self.answer();
        if *answer == Answer::Buffered {
            *answer = Answer::None;
        }
        self.stop_waiting();
    }

    pub(super) fn begin_answer(&self) {
        *self.answer() = Answer::Made;
    }

    /// Records that the connection has buffered the whole body.
    pub(super) fn answer_buffered(&self) {
        let mut answer = self.answer();
        if *answer == Answer::Made {
            *answer = Answer::Buffered;
        }
    }

    /// Records that the buffer is written. If it contained the response, the connection waits for
    /// the next request.
    pub(super) fn buffer_written(&self) {
        let mut answer = self.answer();
        if *answer == Answer::Buffered {
            *answer = Answer::None;
            self.wait();
        }
    }

    /// Records that the peer has stopped reading. The connection may be closed for others until the
    /// peer reads again.
    pub(super) fn answer_stalled(&self) {
        if *self.answer() != Answer::None {
            self.wait();
        }
    }

    /// Records that the peer reads again.
    pub(super) fn answer_resumed(&self) {
        self.stop_waiting();
    }

    fn wait(&self) {
        let mut table = self.connections.lock_table();
        let mut place = self.lock_place();
        if place.is_none() {
            *place = Some(table.wait(self, false));
        }
        drop((place, table));
        self.connections.ended.notify_one();
    }

    fn stop_waiting(&self) {
        let mut table = self.connections.lock_table();
        if let Some(place) = self.lock_place().take() {
            table.stop_waiting(place, self.is_reserve);
        }
    }

    fn answer(&self) -> MutexGuard<'_, Answer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_place(&self) -> MutexGuard<'_, Option<u64>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut table = self.connections.lock_table();
        if let Some(place) = self.lock_place().take() {
            table.stop_waiting(place, self.is_reserve);
        }
        table.pool(self.is_reserve).open -= 1;
        drop(table);
        self.connections.ended.notify_one();
    }
}

/// Returns the network that identifies a peer: a host with IPv6 has a whole network of addresses.
fn peer_network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const TOTAL: usize = 8;
    const PER_PEER: usize = 3;

    fn connections() -> Arc<Connections> {
        let header_timeout = Duration::from_mins(1);
        Connections::new(ConnectionLimits { total: TOTAL, new_per_peer: PER_PEER, header_timeout })
    }

    fn peer(n: usize) -> IpAddr {
        Ipv4Addr::from_bits(u32::try_from(n).unwrap()).into()
    }

    fn closed(all: &[Arc<Connection>]) -> Vec<usize> {
        (0..all.len()).filter(|at| all[*at].close.is_cancelled()).collect()
    }

    /// Answers a request completely.
    fn answer(connection: &Connection) {
        connection.begin_answer();
        connection.answer_buffered();
        connection.buffer_written();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_evicted_only_after_its_answer_is_written() {
        let connections = connections();
        let all: Vec<_> = (0..TOTAL).map(|n| connections.admit(peer(n)).unwrap()).collect();
        all[0].request_arrived();
        all[0].begin_answer();
        all[0].buffer_written();
        all[0].answer_buffered();
        let crowd = || (0..2 * TOTAL).for_each(|n| drop(connections.admit(peer(n)).unwrap()));
        crowd();
        assert!(all[0].is_answering() && !all[0].close.is_cancelled());
        all[0].buffer_written();
        assert!(!all[0].is_answering());
        crowd();
        assert!(all[0].close.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_pipelined_request_is_not_evicted() {
        let connections = connections();
        let connection = connections.admit(peer(1)).unwrap();
        connection.request_arrived();
        connection.begin_answer();
        connection.answer_buffered();
        connection.request_arrived();
        connection.buffer_written();
        assert!(connection.is_answering());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_evicted_for_a_new_one() {
        let connections = connections();
        let all: Vec<_> = (0..TOTAL + RESERVED_CONNECTIONS)
            .map(|n| {
                let connection = connections.admit(peer(n)).unwrap();
                connection.request_arrived();
                connection
            })
            .collect();
        assert!(!connections.has_room());
        let room = connections.ended.notified();
        answer(&all[3]);
        tokio::time::timeout(Duration::from_secs(1), room).await.expect("it is told");
        assert!(connections.has_room());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_whole_request_is_evicted() {
        let connections = connections();
        let all: Vec<_> = (0..TOTAL).map(|n| connections.admit(peer(n)).unwrap()).collect();
        all[0].request_arrived();
        let next = connections.admit(peer(90)).unwrap();
        assert_eq!((closed(&all), next.is_reserve()), (vec![1], false));
        answer(&all[0]);
        let mut more = vec![next];
        more.extend((2..TOTAL).map(|n| connections.admit(peer(n)).unwrap()));
        assert_eq!(closed(&all), [1, 2, 3, 4, 5, 6, 7]);
        more.push(connections.admit(peer(91)).unwrap());
        assert_eq!((closed(&all).len(), closed(&more)), (7, vec![0]), "the oldest first");
        drop((all, more));
        assert_eq!(connections.open(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn reserve_connections_serve_health_checks_when_all_are_busy() {
        let connections = connections();
        let all: Vec<_> = (0..TOTAL).map(|n| connections.admit(peer(n)).unwrap()).collect();
        for connection in &all {
            connection.request_arrived();
        }
        let reserve: Vec<_> =
            (0..RESERVED_CONNECTIONS).map(|n| connections.admit(peer(n)).unwrap()).collect();
        assert!(
            reserve.iter().all(|connection| connection.is_reserve()
                && connection.header_timeout() == RESERVE_TIMEOUT)
        );
        let next = connections.admit(peer(0)).unwrap();
        assert_eq!((closed(&reserve), closed(&all)), (vec![0], vec![]));
        reserve.iter().chain([&next]).for_each(|connection| connection.request_arrived());
        assert!(connections.admit(peer(0)).is_none() && !connections.has_room());
        drop(all);
        assert!(connections.has_room());
        assert!(!connections.admit(peer(0)).unwrap().is_reserve());
    }

    #[tokio::test(start_paused = true)]
    async fn new_connections_of_one_peer_are_limited() {
        let connections = connections();
        let mut all: Vec<_> = (0..=PER_PEER).map(|_| connections.admit(peer(1)).unwrap()).collect();
        assert!(closed(&all).is_empty(), "many may come at once");
        all[1].request_arrived();
        answer(&all[1]);
        tokio::time::advance(BURST).await;
        all.push(connections.admit(peer(1)).unwrap());
        assert_eq!(closed(&all), [0], "one that has asked something may idle");
        all.push(connections.admit(peer(2)).unwrap());
        assert_eq!(closed(&all), [0], "others have nothing to do with it");
    }

    #[test]
    fn a_peer_is_identified_by_its_network() {
        let of = |text: &str| peer_network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:9::9"));
        assert_ne!(of("2001:db8:1:2::4"), of("2001:db8:1:3::4"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
