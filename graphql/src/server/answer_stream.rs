use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Sleep, sleep};

use super::connections::Connection;

/// If a peer reads nothing for this time, the server is allowed to close its connection to make
/// room for other connections.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct AnswerStream<T> {
    stream: T,
    connection: Arc<Connection>,
    /// The timer that ends after [`STALL_TIMEOUT`]. Set while the peer reads nothing.
    stall_timer: Option<Pin<Box<Sleep>>>,
    is_stalled: bool,
}

impl<T> AnswerStream<T> {
    pub(super) fn new(stream: T, connection: Arc<Connection>) -> Self {
        Self { stream, connection, stall_timer: None, is_stalled: false }
    }

    fn record_write<R>(&mut self, context: &mut Context<'_>, written: Poll<R>) -> Poll<R> {
        if written.is_ready() {
            self.stall_timer = None;
            if std::mem::take(&mut self.is_stalled) {
                self.connection.mark_resumed();
            }
        } else if !self.is_stalled {
            let stall_timer =
                self.stall_timer.get_or_insert_with(|| Box::pin(sleep(STALL_TIMEOUT)));
            if stall_timer.as_mut().poll(context).is_ready() {
                self.is_stalled = true;
                self.connection.mark_stalled();
            }
        }
        written
    }
}

impl<T: Read + Unpin> Read for AnswerStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: Write + Unpin> Write for AnswerStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.record_write(context, written)
    }

    /// Hyper flushes only when its own buffer is empty, so after a flush the buffered part of the
    /// answer is written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.connection.mark_buffer_written();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.record_write(context, written)
    }
}
