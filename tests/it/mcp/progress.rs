use futures::FutureExt;
use serde_json::{Value, json};
use shared::tool::{ErrorCode, Progress};
use tests::toolset::second_attempt;
use toolbox::{
    ToolContext,
    progress::{Listener, report_channel},
};

use super::misbehaving_server::ServerTest;

fn context_with_listener() -> (ToolContext, Listener) {
    let (reporter, listener) = report_channel();
    (ToolContext { reporter, ..second_attempt() }, listener)
}

fn newest_progress(listener: &mut Listener) -> Option<Progress> {
    listener.next().now_or_never().map(|progress| progress.progress)
}

#[tokio::test]
async fn a_call_receives_the_progress_of_its_server() {
    let test = ServerTest::connect().await;
    let (cx, mut listener) = context_with_listener();
    let parameters = json!({ "every": 1, "times": 3 });
    assert_eq!(test.connected.call_in("report", parameters, cx).await, Ok(json!(3)));
    let last = Progress { progress: 3.0, total: Some(3.0), message: Some("3 of 3".into()) };
    assert_eq!(newest_progress(&mut listener), Some(last));
}

#[tokio::test]
async fn progress_arrives_while_the_call_runs() {
    let test = ServerTest::connect().await;
    let (cx, mut listener) = context_with_listener();
    let cancel = cx.cancel.clone();
    let parameters = json!({ "every": 1, "times": 2, "hang": true });
    let call = test.connected.call_in("report", parameters, cx);
    let (ended, ()) = tokio::join!(call, async {
        while listener.next().await.progress.progress < 2.0 {}
        cancel.cancel();
    });
    assert_eq!(ended.unwrap_err().code, ErrorCode::CANCELLED);
}

#[tokio::test]
async fn progress_with_foreign_late_or_invalid_tokens_is_ignored() {
    let test = ServerTest::connect().await;
    let late = test.call("meta", json!({})).await.unwrap()["progressToken"].clone();
    let (other_cx, mut other) = context_with_listener();
    let other_cancel = other_cx.cancel.clone();
    let hang = test.connected.call_in("hang", json!({}), other_cx);
    let (cx, mut listener) = context_with_listener();
    let (_, own) = tokio::join!(hang, async {
        let tokens = json!([late, -1, 1_000_000, u64::MAX, 0.5, "0", "", null, {}, []]);
        let own = test.connected.call_in("forge", json!({ "tokens": tokens }), cx).await;
        other_cancel.cancel();
        own
    });
    let own = own.unwrap();
    assert!(own.is_number() && own != late, "{own}");
    let report = Progress { progress: 7.0, total: None, message: Some("own".into()) };
    assert_eq!(newest_progress(&mut listener), Some(report));
    assert_eq!(newest_progress(&mut other), None);
    // The call has ended, so a report with the token of that call has no receiver.
    test.call("forge", json!({ "tokens": [own] })).await.unwrap();
    assert_eq!(newest_progress(&mut listener), None);
}

#[tokio::test]
async fn a_flood_of_progress_stays_in_order_and_delays_no_call() {
    let test = ServerTest::connect().await;
    let (cx, mut listener) = context_with_listener();
    let times = 20_000;
    let flood = test.connected.call_in("flood", json!({ "times": times }), cx);
    let others = async {
        for _ in 0..10 {
            assert_eq!(test.call("starts", json!({})).await, Ok(json!(1)));
        }
    };
    let (flooded, ()) = tokio::join!(flood, others);
    assert_eq!(flooded, Ok(json!(times)));
    let last = newest_progress(&mut listener).unwrap();
    assert_eq!(json!(last.progress), json!(f64::from(times)));
    assert!(last.message.unwrap().len() <= shared::limits::PROGRESS_BYTES);
    assert_eq!(newest_progress(&mut listener), None);
}

#[tokio::test]
async fn a_flood_of_progress_ends_when_the_call_is_cancelled() {
    let test = ServerTest::connect().await;
    let cx = second_attempt();
    let cancel = cx.cancel.clone();
    let flood = test.connected.call_in("flood", json!({ "times": Value::from(1_u64 << 50) }), cx);
    let (flooded, ()) = tokio::join!(flood, async {
        test.call("starts", json!({})).await.unwrap();
        cancel.cancel();
    });
    assert_eq!(flooded.unwrap_err().code, ErrorCode::CANCELLED);
    assert_eq!(test.call("cancelled", json!({})).await, Ok(json!(1)));
}
