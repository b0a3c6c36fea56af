//! A client against a server played by the test.

use super::*;
use crate::msg::{encode_refusal, encode_success};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

/// The server's end: reads calls, and answers when the test says so.
struct Far {
    stream: DuplexStream,
    records: Records,
}

impl Far {
    async fn next(&mut self) -> (CallHeader, Reader) {
        loop {
            if let Some(record) = self.records.next_record().unwrap() {
                return CallHeader::decode(record).unwrap();
            }
            assert!(self.stream.read_buf(self.records.buffer()).await.unwrap() > 0);
        }
    }

    async fn answer(&mut self, write: impl FnOnce(&mut Writer)) {
        let mut out = Outbox::default();
        let mut reply = Writer::new();
        write(&mut reply);
        out.push(reply.len(), |w| w.append(reply));
        while !out.is_empty() {
            poll_fn(|cx| out.poll_write(cx, &mut self.stream)).await.unwrap();
        }
    }

    async fn answer_number(&mut self, xid: u32, number: u32) {
        self.answer(|w| {
            encode_success(xid, w);
            w.u32(number);
        })
        .await;
    }
}

fn pair() -> (Client, Far) {
    let (near, stream) = duplex(64 << 10);
    (Client::with_stream(near), Far { stream, records: Records::new(1 << 24) })
}

async fn number(client: &Client, xid: u32) -> Result<u32, CallError> {
    let mut reply = client.call_with_xid(xid, 1, 1, 1, &Credential::None, |w| w.u32(xid)).await?;
    Ok(reply.u32()?)
}

#[tokio::test]
async fn replies_find_their_callers_in_any_order() {
    let (client, mut far) = pair();
    let server = async {
        let mut xids = Vec::new();
        for _ in 0..3 {
            let (header, mut args) = far.next().await;
            assert_eq!(args.u32(), Ok(header.xid));
            xids.push(header.xid);
        }
        far.answer_number(999, 0).await;
        for xid in xids.into_iter().rev() {
            far.answer_number(xid, xid * 10).await;
        }
    };
    let (a, b, c, ()) = tokio::join!(number(&client, 1), number(&client, 2), number(&client, 3), server);
    assert_eq!((a, b, c), (Ok(10), Ok(20), Ok(30)));
}

#[tokio::test]
async fn one_xid_twice_is_sent_twice_and_answered_in_order() {
    let (client, mut far) = pair();
    let server = async {
        for answer in [100, 200] {
            assert_eq!(far.next().await.0.xid, 7);
            far.answer_number(7, answer).await;
        }
    };
    let (a, b, ()) = tokio::join!(number(&client, 7), number(&client, 7), server);
    assert_eq!((a, b), (Ok(100), Ok(200)));
}

#[tokio::test]
async fn refusals_and_broken_replies_are_told_apart() {
    let (client, mut far) = pair();
    let server = async {
        far.next().await;
        far.answer(|w| encode_refusal(1, &Refusal::ProcUnavail, w)).await;
        far.next().await;
        far.answer(|w| encode_success(2, w)).await;
    };
    let (a, b, ()) = tokio::join!(number(&client, 1), number(&client, 2), server);
    assert_eq!(a, Err(CallError::Refused(Refusal::ProcUnavail)));
    assert_eq!(b, Err(CallError::Malformed(XdrError::Truncated)));
}

#[tokio::test]
async fn callers_learn_that_the_connection_is_closed() {
    let (client, mut far) = pair();
    let server = async move {
        far.next().await;
        drop(far);
    };
    let (waiting, ()) = tokio::join!(number(&client, 1), server);
    assert!(matches!(waiting, Err(CallError::Closed(_))), "{waiting:?}");
    assert!(matches!(number(&client, 2).await, Err(CallError::Closed(_))));
}

#[tokio::test]
async fn garbage_from_the_server_closes_with_its_reason() {
    let (client, mut far) = pair();
    let server = async {
        far.next().await;
        far.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").await.unwrap();
    };
    let (waiting, ()) = tokio::join!(number(&client, 1), server);
    let Err(CallError::Closed(why)) = waiting else { panic!("{waiting:?}") };
    assert!(why.contains("a record of more than"), "{why}");
}

#[tokio::test]
async fn more_than_the_stream_holds_goes_through() {
    let (client, mut far) = pair();
    let data = Bytes::from(vec![5; 1 << 20]);
    let calls = 30;
    let server = async {
        for _ in 0..calls {
            let (header, mut args) = far.next().await;
            assert_eq!(Bytes::decode(&mut args).unwrap().len(), 1 << 20);
            far.answer_number(header.xid, 1).await;
        }
    };
    let writes = futures_util::future::join_all((0..calls).map(|_| async {
        client.call(1, 1, 1, &Credential::sys(1, 1, &[]), |w| w.payload(&data)).await.unwrap();
    }));
    tokio::join!(writes, server);
}

#[tokio::test]
async fn the_connection_ends_with_the_last_handle() {
    let (client, mut far) = pair();
    let other = client.clone();
    drop(client);
    let (_, ()) = tokio::join!(number(&other, 1), async {
        far.next().await;
        far.answer_number(1, 1).await;
    });
    drop(other);
    assert_eq!(far.stream.read_buf(far.records.buffer()).await.unwrap(), 0);
}

#[tokio::test]
async fn typed_results_are_decoded_to_their_end() {
    let (client, mut far) = pair();
    let ask = async || client.ask::<u32>(1, 1, 1, &Credential::None, &5u64).await;
    let server = async {
        let (header, mut args) = far.next().await;
        assert_eq!(args.u64(), Ok(5));
        far.answer_number(header.xid, 6).await;
        let (header, _) = far.next().await;
        far.answer(|w| {
            encode_success(header.xid, w);
            w.u64(6);
        })
        .await;
    };
    let asks = async { (ask().await, ask().await) };
    let (answers, ()) = tokio::join!(asks, server);
    assert_eq!(answers, (Ok(6), Err(CallError::Malformed(XdrError::Trailing))));
}
