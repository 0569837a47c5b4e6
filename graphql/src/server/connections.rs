//! Decides which connections are served, and which one is closed if there are too many. A reserve
//! beyond the limit serves `/health/` only, so that monitors get a response.

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

/// Number of reserve connections beyond the limit. They serve health checks only.
const RESERVED_CONNECTIONS: usize = 64;

const RESERVE_TIMEOUT: Duration = Duration::from_secs(2);

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// For this time, a peer is allowed to have more new connections than its limit, because a browser
/// opens several at once.
const BURST_TIME: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionLimits {
    pub(super) max_connections: usize,
    pub(super) max_new_per_peer: usize,
    pub(super) header_timeout: Duration,
}

#[derive(Debug)]
pub(super) struct Connections {
    limits: ConnectionLimits,
    connection_table: Mutex<ConnectionTable>,
    evicted_count: AtomicU64,
    /// Signalled when a connection ends, or starts to wait so that it can be closed.
    pub(super) room_signal: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next_queue_place: u64,
    ordinary_pool: Pool,
    reserve_pool: Pool,
    unfinished_by_peer: BTreeMap<IpAddr, BTreeSet<u64>>,
}

#[derive(Debug, Default)]
struct Pool {
    open_count: usize,
    /// Connections that the server is allowed to close, oldest first: connections that wait for a
    /// complete request, and connections whose peer does not read the answer.
    waiting: BTreeMap<u64, WaitingConnection>,
}

#[derive(Debug)]
struct WaitingConnection {
    since: Instant,
    peer: IpAddr,
    close_token: CancellationToken,
}

#[derive(Debug)]
pub(super) struct Connection {
    connections: Arc<Connections>,
    peer: IpAddr,
    is_reserve: bool,
    header_timeout: Duration,
    close_token: CancellationToken,
    /// The key of the connection in [`Pool::waiting`], or `None` while it is not in this map.
    queue_place: Mutex<Option<u64>>,
    answer: Mutex<AnswerState>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AnswerState {
    #[default]
    None,
    Started,
    /// Hyper has the whole body, but has perhaps not written all of it.
    Buffered,
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Self> {
        let (connection_table, evicted_count) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self {
            limits,
            connection_table,
            evicted_count,
            room_signal: tokio::sync::Notify::new(),
        })
    }

    /// Accepts a connection. Returns `None` if the limit and the reserve are reached, and no
    /// connection waits and can be closed.
    pub(super) fn accept(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<Connection>> {
        let peer = peer_network(peer);
        let mut connection_table = self.lock_table();
        let maximum = self.limits.max_connections;
        let is_reserve = connection_table.ordinary_pool.open_count >= maximum
            && !self.evict_oldest(&mut connection_table, false);
        if is_reserve
            && connection_table.reserve_pool.open_count >= RESERVED_CONNECTIONS
            && !self.evict_oldest(&mut connection_table, true)
        {
            return None;
        }
        connection_table.pool_mut(is_reserve).open_count += 1;
        let header_timeout = match connection_table.ordinary_pool.open_count {
            _ if is_reserve => RESERVE_TIMEOUT,
            open_count if open_count > maximum / 4 * 3 => BUSY_TIMEOUT,
            _ => self.limits.header_timeout,
        };
        let connection = Connection {
            connections: Arc::clone(self),
            peer,
            is_reserve,
            header_timeout: header_timeout.min(self.limits.header_timeout),
            close_token: CancellationToken::new(),
            queue_place: Mutex::default(),
            answer: Mutex::default(),
        };
        let queue_place = connection_table.add_waiting(&connection, true);
        *connection.lock_place() = Some(queue_place);
        self.evict_oldest_of_peer(&mut connection_table, peer);
        Some(Arc::new(connection))
    }

    pub(super) fn has_room(&self) -> bool {
        let connection_table = self.lock_table();
        connection_table.ordinary_pool.open_count < self.limits.max_connections
            || connection_table.reserve_pool.open_count < RESERVED_CONNECTIONS
            || !connection_table.ordinary_pool.waiting.is_empty()
            || !connection_table.reserve_pool.waiting.is_empty()
    }

    pub(super) fn format_metrics(&self) -> String {
        format!(
            "# HELP faber_connections_open Connections open now, WebSockets included.\n\
             # TYPE faber_connections_open gauge\n\
             faber_connections_open {}\n\
             # HELP faber_connections_closed_total Connections closed to make room for others.\n\
             # TYPE faber_connections_closed_total counter\n\
             faber_connections_closed_total {}\n",
            self.count_open(),
            self.evicted_count.load(Ordering::Relaxed)
        )
    }

    fn count_open(&self) -> usize {
        let connection_table = self.lock_table();
        connection_table.ordinary_pool.open_count + connection_table.reserve_pool.open_count
    }

    /// Closes the longest waiting connection of a pool. Returns `false` if no connection waits.
    fn evict_oldest(&self, connection_table: &mut ConnectionTable, is_reserve: bool) -> bool {
        let oldest = connection_table.pool_mut(is_reserve).waiting.keys().next().copied();
        oldest.is_some_and(|queue_place| {
            self.evict_connection(connection_table, queue_place, is_reserve)
        })
    }

    fn evict_oldest_of_peer(&self, connection_table: &mut ConnectionTable, peer: IpAddr) {
        while let Some(new) = connection_table.unfinished_by_peer.get(&peer)
            && new.len() > self.limits.max_new_per_peer
            && let Some(queue_place) = new.first().copied()
            && let Some(waiting) = connection_table.ordinary_pool.waiting.get(&queue_place)
            && waiting.since.elapsed() >= BURST_TIME
        {
            self.evict_connection(connection_table, queue_place, false);
        }
    }

    fn evict_connection(
        &self,
        connection_table: &mut ConnectionTable,
        queue_place: u64,
        is_reserve: bool,
    ) -> bool {
        let Some(evicted) = connection_table.stop_waiting(queue_place, is_reserve) else {
            return false;
        };
        evicted.close_token.cancel();
        let closed = self.evicted_count.fetch_add(1, Ordering::Relaxed) + 1;
        if closed.is_power_of_two() {
            tracing::warn!(
                closed,
                peer = %evicted.peer,
                "closed a connection that had sent no complete request or did not read its answer, \
                 to make room for other connections"
            );
        }
        true
    }

    fn lock_table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.connection_table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionTable {
    fn pool_mut(&mut self, is_reserve: bool) -> &mut Pool {
        if is_reserve { &mut self.reserve_pool } else { &mut self.ordinary_pool }
    }

    fn add_waiting(&mut self, connection: &Connection, is_new: bool) -> u64 {
        let queue_place = self.next_queue_place;
        self.next_queue_place += 1;
        let (peer, close_token) = (connection.peer, connection.close_token.clone());
        let waiting = WaitingConnection { since: Instant::now(), peer, close_token };
        self.pool_mut(connection.is_reserve).waiting.insert(queue_place, waiting);
        if is_new && !connection.is_reserve {
            self.unfinished_by_peer.entry(peer).or_default().insert(queue_place);
        }
        queue_place
    }

    fn stop_waiting(&mut self, queue_place: u64, is_reserve: bool) -> Option<WaitingConnection> {
        let waiting = self.pool_mut(is_reserve).waiting.remove(&queue_place)?;
        if let Some(new) = self.unfinished_by_peer.get_mut(&waiting.peer) {
            new.remove(&queue_place);
            if new.is_empty() {
                self.unfinished_by_peer.remove(&waiting.peer);
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

    pub(super) async fn wait_until_closed(&self) {
        self.close_token.cancelled().await;
    }

    pub(super) fn is_answering(&self) -> bool {
        self.lock_place().is_none()
    }

    pub(super) fn mark_request_complete(&self) {
        let mut answer = self.lock_answer();
        if *answer == AnswerState::Buffered {
            *answer = AnswerState::None;
        }
        self.stop_waiting();
    }

    pub(super) fn mark_answer_started(&self) {
        *self.lock_answer() = AnswerState::Started;
    }

    pub(super) fn mark_answer_buffered(&self) {
        let mut answer = self.lock_answer();
        if *answer == AnswerState::Started {
            *answer = AnswerState::Buffered;
        }
    }

    /// Records that hyper has written its buffer. If the buffer contained the end of the response,
    /// the connection waits for the next request.
    pub(super) fn mark_buffer_written(&self) {
        let mut answer = self.lock_answer();
        if *answer == AnswerState::Buffered {
            *answer = AnswerState::None;
            self.add_waiting();
        }
    }

    /// Records that the peer has stopped reading. Until the peer reads again, the connection can be
    /// closed to make room for other connections.
    pub(super) fn mark_stalled(&self) {
        if *self.lock_answer() != AnswerState::None {
            self.add_waiting();
        }
    }

    pub(super) fn mark_resumed(&self) {
        self.stop_waiting();
    }

    fn add_waiting(&self) {
        let mut connection_table = self.connections.lock_table();
        let mut queue_place = self.lock_place();
        if queue_place.is_none() {
            *queue_place = Some(connection_table.add_waiting(self, false));
        }
        drop((queue_place, connection_table));
        self.connections.room_signal.notify_one();
    }

    fn stop_waiting(&self) {
        let mut connection_table = self.connections.lock_table();
        if let Some(queue_place) = self.lock_place().take() {
            connection_table.stop_waiting(queue_place, self.is_reserve);
        }
    }

    fn lock_answer(&self) -> MutexGuard<'_, AnswerState> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_place(&self) -> MutexGuard<'_, Option<u64>> {
        self.queue_place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut connection_table = self.connections.lock_table();
        if let Some(queue_place) = self.lock_place().take() {
            connection_table.stop_waiting(queue_place, self.is_reserve);
        }
        connection_table.pool_mut(self.is_reserve).open_count -= 1;
        drop(connection_table);
        self.connections.room_signal.notify_one();
    }
}

/// Returns the network that identifies a peer. A host with IPv6 can use every address of its
/// network, so a single address would not identify it.
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
    const MAX_NEW_PER_PEER: usize = 3;

    fn make_connections() -> Arc<Connections> {
        let header_timeout = Duration::from_mins(1);
        Connections::new(ConnectionLimits {
            max_connections: TOTAL,
            max_new_per_peer: MAX_NEW_PER_PEER,
            header_timeout,
        })
    }

    fn peer_address(n: usize) -> IpAddr {
        Ipv4Addr::from_bits(u32::try_from(n).unwrap()).into()
    }

    fn closed_positions(all: &[Arc<Connection>]) -> Vec<usize> {
        (0..all.len()).filter(|index| all[*index].close_token.is_cancelled()).collect()
    }

    fn answer_request(connection: &Connection) {
        connection.mark_answer_started();
        connection.mark_answer_buffered();
        connection.mark_buffer_written();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_evicted_only_after_its_answer_is_written() {
        let connections = make_connections();
        let all: Vec<_> =
            (0..TOTAL).map(|n| connections.accept(peer_address(n)).unwrap()).collect();
        all[0].mark_request_complete();
        all[0].mark_answer_started();
        all[0].mark_buffer_written();
        all[0].mark_answer_buffered();
        let crowd =
            || (0..2 * TOTAL).for_each(|n| drop(connections.accept(peer_address(n)).unwrap()));
        crowd();
        assert!(all[0].is_answering() && !all[0].close_token.is_cancelled());
        all[0].mark_buffer_written();
        assert!(!all[0].is_answering());
        crowd();
        assert!(all[0].close_token.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_pipelined_request_is_not_evicted() {
        let connections = make_connections();
        let connection = connections.accept(peer_address(1)).unwrap();
        connection.mark_request_complete();
        connection.mark_answer_started();
        connection.mark_answer_buffered();
        connection.mark_request_complete();
        connection.mark_buffer_written();
        assert!(connection.is_answering());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_evicted_for_a_new_one() {
        let connections = make_connections();
        let all: Vec<_> = (0..TOTAL + RESERVED_CONNECTIONS)
            .map(|n| {
                let connection = connections.accept(peer_address(n)).unwrap();
                connection.mark_request_complete();
                connection
            })
            .collect();
        assert!(!connections.has_room());
        let room = connections.room_signal.notified();
        answer_request(&all[3]);
        tokio::time::timeout(Duration::from_secs(1), room)
            .await
            .expect("the waiting task is notified");
        assert!(connections.has_room());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_whole_request_is_evicted() {
        let connections = make_connections();
        let all: Vec<_> =
            (0..TOTAL).map(|n| connections.accept(peer_address(n)).unwrap()).collect();
        all[0].mark_request_complete();
        let next = connections.accept(peer_address(90)).unwrap();
        assert_eq!((closed_positions(&all), next.is_reserve()), (vec![1], false));
        answer_request(&all[0]);
        let mut more = vec![next];
        more.extend((2..TOTAL).map(|n| connections.accept(peer_address(n)).unwrap()));
        assert_eq!(closed_positions(&all), [1, 2, 3, 4, 5, 6, 7]);
        more.push(connections.accept(peer_address(91)).unwrap());
        assert_eq!(
            (closed_positions(&all).len(), closed_positions(&more)),
            (7, vec![0]),
            "the oldest first"
        );
        drop((all, more));
        assert_eq!(connections.count_open(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn reserve_connections_serve_health_checks_when_all_are_busy() {
        let connections = make_connections();
        let all: Vec<_> =
            (0..TOTAL).map(|n| connections.accept(peer_address(n)).unwrap()).collect();
        for connection in &all {
            connection.mark_request_complete();
        }
        let reserve: Vec<_> = (0..RESERVED_CONNECTIONS)
            .map(|n| connections.accept(peer_address(n)).unwrap())
            .collect();
        assert!(
            reserve.iter().all(|connection| connection.is_reserve()
                && connection.header_timeout() == RESERVE_TIMEOUT)
        );
        let next = connections.accept(peer_address(0)).unwrap();
        assert_eq!((closed_positions(&reserve), closed_positions(&all)), (vec![0], vec![]));
        reserve.iter().chain([&next]).for_each(|connection| connection.mark_request_complete());
        assert!(connections.accept(peer_address(0)).is_none() && !connections.has_room());
        drop(all);
        assert!(connections.has_room());
        assert!(!connections.accept(peer_address(0)).unwrap().is_reserve());
    }

    #[tokio::test(start_paused = true)]
    async fn new_connections_of_one_peer_are_limited() {
        let connections = make_connections();
        let mut all: Vec<_> =
            (0..=MAX_NEW_PER_PEER).map(|_| connections.accept(peer_address(1)).unwrap()).collect();
        assert!(closed_positions(&all).is_empty(), "many may come at once");
        all[1].mark_request_complete();
        answer_request(&all[1]);
        tokio::time::advance(BURST_TIME).await;
        all.push(connections.accept(peer_address(1)).unwrap());
        assert_eq!(closed_positions(&all), [0], "a connection that sent a request may be idle");
        all.push(connections.accept(peer_address(2)).unwrap());
        assert_eq!(closed_positions(&all), [0], "connections of other peers are not affected");
    }

    #[test]
    fn a_peer_is_identified_by_its_network() {
        let network = |text: &str| peer_network(text.parse().unwrap());
        assert_eq!(network("2001:db8:1:2:3::4"), network("2001:db8:1:2:9::9"));
        assert_ne!(network("2001:db8:1:2::4"), network("2001:db8:1:3::4"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
