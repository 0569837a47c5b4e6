use futures::FutureExt;
use serde_json::{Value, json};
use shared::tool::{ErrorCode, Progress};
use tests::toolset::step;
use toolbox::{
    ToolContext,
    progress::{Listener, pipe},
};

use super::hostile::World;

/// Returns a context and where its reports are heard.
fn heard() -> (ToolContext, Listener) {
    let (reporter, listener) = pipe();
    (ToolContext { reporter, ..step() }, listener)
}

fn newest(listener: &mut Listener) -> Option<Progress> {
    listener.next().now_or_never().map(|progress| progress.progress)
}

#[tokio::test]
async fn a_call_hears_what_the_server_reports_about_it() {
    let world = World::ready().await;
    let (cx, mut listener) = heard();
    let parameters = json!({ "every": 1, "times": 3 });
    assert_eq!(world.connected.call_in("report", parameters, cx).await, Ok(json!(3)));
    let last = Progress { progress: 3.0, total: Some(3.0), message: Some("3 of 3".into()) };
    assert_eq!(newest(&mut listener), Some(last));
}

#[tokio::test]
async fn a_report_arrives_while_the_call_is_under_way() {
    let world = World::ready().await;
    let (cx, mut listener) = heard();
    let cancel = cx.cancel.clone();
    let parameters = json!({ "every": 1, "times": 2, "hang": true });
    let call = world.connected.call_in("report", parameters, cx);
    let (ended, ()) = tokio::join!(call, async {
        while listener.next().await.progress.progress < 2.0 {}
        cancel.cancel();
    });
    assert_eq!(ended.unwrap_err().code, ErrorCode::CANCELLED);
}

#[tokio::test]
async fn reports_under_foreign_late_and_senseless_tokens_are_ignored() {
    let world = World::ready().await;
    let late = world.call("meta", json!({})).await.unwrap()["progressToken"].clone();
    let (other_cx, mut other) = heard();
    let other_cancel = other_cx.cancel.clone();
    let hang = world.connected.call_in("hang", json!({}), other_cx);
    let (cx, mut listener) = heard();
    let (_, own) = tokio::join!(hang, async {
        let tokens = json!([late, -1, 1_000_000, u64::MAX, 0.5, "0", "", null, {}, []]);
        let own = world.connected.call_in("forge", json!({ "tokens": tokens }), cx).await;
        other_cancel.cancel();
        own
    });
    let own = own.unwrap();
    assert!(own.is_number() && own != late, "{own}");
    let report = Progress { progress: 7.0, total: None, message: Some("own".into()) };
    assert_eq!(newest(&mut listener), Some(report));
    assert_eq!(newest(&mut other), None);
    // The tool has ended: nobody hears a report under its token.
    world.call("forge", json!({ "tokens": [own] })).await.unwrap();
    assert_eq!(newest(&mut listener), None);
}

#[tokio::test]
async fn a_flood_of_reports_stays_in_order_and_delays_nobody() {
    let world = World::ready().await;
    let (cx, mut listener) = heard();
    let times = 20_000;
    let flood = world.connected.call_in("flood", json!({ "times": times }), cx);
    let others = async {
        for _ in 0..10 {
            assert_eq!(world.call("starts", json!({})).await, Ok(json!(1)));
        }
    };
    let (flooded, ()) = tokio::join!(flood, others);
    assert_eq!(flooded, Ok(json!(times)));
    let last = newest(&mut listener).unwrap();
    assert_eq!(json!(last.progress), json!(f64::from(times)));
    assert!(last.message.unwrap().len() <= shared::limits::PROGRESS_BYTES);
    assert_eq!(newest(&mut listener), None);
}

#[tokio::test]
async fn a_flood_that_nobody_hears_ends_when_the_call_is_cancelled() {
    let world = World::ready().await;
    let cx = step();
    let cancel = cx.cancel.clone();
    let flood = world.connected.call_in("flood", json!({ "times": Value::from(1_u64 << 50) }), cx);
    let (flooded, ()) = tokio::join!(flood, async {
        world.call("starts", json!({})).await.unwrap();
        cancel.cancel();
    });
    assert_eq!(flooded.unwrap_err().code, ErrorCode::CANCELLED);
    assert_eq!(world.call("cancelled", json!({})).await, Ok(json!(1)));
}
