//! A small HTTP client that keeps cookies, as a browser does.

use std::collections::BTreeMap;

use tests::toolset::MAX_WAIT;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// The cookies of one server. Ignores their paths, because the tests visit few pages.
#[derive(Debug, Default)]
pub(super) struct Browser {
    cookies: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn cookie(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(key, _)| key == "set-cookie");
        let found = all.find(|(_, value)| value.starts_with(&format!("{name}=")));
        found.map(|(_, value)| value.as_str())
    }
}

impl Browser {
    pub(super) async fn send(
        &mut self,
        method: &str,
        url: &str,
        headers: &[&str],
        body: &str,
    ) -> Answer {
        let (host, path) = split_url(url);
        let mut stream =
            TcpStream::connect(host).await.unwrap_or_else(|err| panic!("{method} {url}: {err}"));
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n",
            body.len()
        );
        if !self.cookies.is_empty() {
            let pairs: Vec<String> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            request.extend(["Cookie: ", &pairs.join("; "), "\r\n"]);
        }
        for header in headers {
            request.extend([header, "\r\n"]);
        }
        request.extend(["\r\n", body]);
        stream
            .write_all(request.as_bytes())
            .await
            .unwrap_or_else(|err| panic!("{method} {url}: {err}"));
        let mut bytes = Vec::new();
        let read = timeout(MAX_WAIT, stream.read_to_end(&mut bytes)).await.unwrap();
        read.map_or_else(|err| panic!("{method} {url}: {err}"), drop);
        let answer = parse_answer(&String::from_utf8_lossy(&bytes));
        self.keep_cookies(&answer);
        answer
    }

    pub(super) async fn get(&mut self, url: &str) -> Answer {
        self.send("GET", url, &[], "").await
    }

    pub(super) async fn post_form(&mut self, url: &str, form: &str) -> Answer {
        self.send("POST", url, &["Content-Type: application/x-www-form-urlencoded"], form).await
    }

    /// Follows redirects until an answer is a page or leads to a URL that begins with `end`. Returns
    /// the URL of the last request, or the URL with `end`, and the answer.
    pub(super) async fn follow(&mut self, start: &str, end: &str) -> (String, Answer) {
        let mut url = start.to_owned();
        loop {
            let answer = self.get(&url).await;
            let Some(location) = answer.header("location") else { return (url, answer) };
            let next = join_url(&url, location);
            if next.starts_with(end) {
                return (next, answer);
            }
            url = next;
        }
    }

    pub(super) fn has_cookie(&self, name: &str) -> bool {
        self.cookies.contains_key(name)
    }

    fn keep_cookies(&mut self, answer: &Answer) {
        for (_, text) in answer.headers.iter().filter(|(key, _)| key == "set-cookie") {
            let (name, rest) = text.split_once('=').unwrap();
            let value = rest.split(';').next().unwrap();
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }
}

fn split_url(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").unwrap();
    rest.find('/').map_or((rest, "/"), |start| rest.split_at(start))
}

pub(super) fn join_url(base: &str, location: &str) -> String {
    match location.strip_prefix('/') {
        Some(path) => format!("http://{}/{path}", split_url(base).0),
        None => location.to_owned(),
    }
}

fn parse_answer(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Answer { status, headers, body: body.to_owned() }
}
