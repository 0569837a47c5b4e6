//! Hides the type of the executor behind a trait object, so that the server is compiled only once.

use async_graphql::{Executor, Request, Response};
use futures::{FutureExt as _, future::BoxFuture, stream::BoxStream};

pub(super) trait OperationExecutor: Send + Sync {
    fn execute(&self, request: Request) -> BoxFuture<'_, Response>;
    fn execute_stream(&self, request: Request) -> BoxStream<'static, Response>;
}

impl<E: Executor> OperationExecutor for E {
    fn execute(&self, request: Request) -> BoxFuture<'_, Response> {
        Executor::execute(self, request).boxed()
    }

    fn execute_stream(&self, request: Request) -> BoxStream<'static, Response> {
        Executor::execute_stream(self, request, None)
    }
}
