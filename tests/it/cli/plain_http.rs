//! A GET request without a library.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) async fn get_text(address: &str, path: &str) -> String {
    let (status, body) = get_answer(address, path).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

pub(crate) async fn get_answer(address: &str, path: &str) -> (u16, String) {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let ask = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    connection.write_all(ask.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
