//! WebSockets of axum, over HTTP/1 and HTTP/2.

use crate::services::builder;
use axum::Router;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::routing::any;
use forebay::{HandlerOptions, Server};
use forebay_tests::http2;
use forebay_tests::websocket::{Frame, TunnelEnd};
use forebay_tower::TowerHandler;
use std::net::TcpStream;

on_each_engine! {
    a_websocket_of_axum_echoes,
    one_that_is_refused_is_answered,
}

fn serve(engine: &str) -> Server {
    let echo = |upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                if let Message::Binary(bytes) = message
                    && socket.send(Message::Binary(bytes)).await.is_err()
                {
                    return;
                }
            }
        })
    };
    let app = Router::new()
        .route("/echo", any(echo))
        .route("/no", any(|| async { StatusCode::FORBIDDEN }));
    let options = HandlerOptions { upgrades: true, ..HandlerOptions::default() };
    let handler = TowerHandler::new(app).unwrap();
    builder(engine).detached("/", options, handler).start().unwrap()
}

fn a_websocket_of_axum_echoes(engine: &str) {
    let server = serve(engine);
    let address = server.addresses()[0];
    let ends = [
        TunnelEnd::by_http1(TcpStream::connect(address).unwrap(), "/echo"),
        TunnelEnd::by_http2(http2::Client::connect(address), "/echo"),
    ];
    for mut end in ends {
        for length in [1, 60_000, 300_000] {
            let payload: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let mut sent = Vec::new();
            Frame::whole(2, &payload, [1, 2, 3, 4]).write(&mut sent);
            end.send(&sent);
            let head = match length {
                1 => 2,
                60_000 => 4,
                _ => 10,
            };
            let back = end.take(head + payload.len());
            assert!(back[head..] == payload, "{length}");
        }
        let mut close = Vec::new();
        Frame::whole(8, &1000u16.to_be_bytes(), [0; 4]).write(&mut close);
        end.send(&close);
        // the answer to the close frame, and then the end
        assert_eq!(end.rest(), [0x88, 2, 3, 232]);
        end.finish();
    }
    server.stop().unwrap();
}

fn one_that_is_refused_is_answered(engine: &str) {
    let server = serve(engine);
    let address = server.addresses()[0];
    let by_http1 = TunnelEnd::try_http1(TcpStream::connect(address).unwrap(), "/no");
    assert_eq!(by_http1.err().map(|(status, _)| status), Some(403));
    let by_http2 = TunnelEnd::try_http2(http2::Client::connect(address), "/no");
    assert_eq!(by_http2.err().map(|(status, _)| status), Some(403));
}
