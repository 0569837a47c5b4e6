//! Vectors in MongoDB: one document each, known by its model and its text.

use async_trait::async_trait;
use futures::TryStreamExt;
use mongodb::bson::{
    Binary, Document as Row, RawArrayBuf, RawDocument, RawDocumentBuf, doc, raw::cstr, rawdoc,
    spec::BinarySubtype,
};
use shared::store::{
    StoreError, TextHash, Vectors,
    backend::{check_vectors, decode_vector, encode_vector},
};

use super::{Mongo, commands, connection::failed};

/// The collection.
const VECTORS: &str = "vectors";
/// Texts that are asked for together.
const ASKED: usize = 4_096;
/// Bytes of vectors that are written together.
const BATCH_BYTES: usize = 4 << 20;

#[async_trait]
impl Vectors for Mongo {
    async fn find_vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|at| texts[*at]);
        let mut vectors = vec![None; texts.len()];
        for asked in order.chunks(ASKED) {
            let id = |at: &usize| doc! { "m": model, "t": binary(texts[*at].0.to_vec()) };
            let ids: Vec<Row> = asked.iter().map(id).collect();
            let collection = self.raw(VECTORS);
            let found = collection.find(doc! { "_id": { "$in": ids } });
            let found = found.batch_size(u32::try_from(ASKED).unwrap_or(u32::MAX)).await;
            let mut found = found.map_err(|err| failed(&err))?;
            while let Some(row) = found.try_next().await.map_err(|err| failed(&err))? {
                let (text, vector) = read(&row)?;
                let from = asked.partition_point(|at| texts[*at] < text);
                let same = asked[from..].iter().take_while(|at| texts[**at] == text);
                same.for_each(|at| vectors[*at] = Some(vector.clone()));
            }
        }
        Ok(vectors)
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        check_vectors(model, vectors)?;
        let longest = vectors.iter().map(|(_, it)| it.len() * size_of::<f32>()).max();
        let together = (BATCH_BYTES / longest.unwrap_or_default().max(1)).clamp(1, ASKED);
        for vectors in vectors.chunks(together) {
            let mut documents = RawArrayBuf::new();
            for (text, numbers) in vectors {
                let mut row = RawDocumentBuf::new();
                let id = rawdoc! { "m": model, "t": binary(text.0.to_vec()) };
                row.append(cstr!("_id"), id);
                row.append(cstr!("v"), binary(encode_vector(numbers)));
                documents.push(row);
            }
            let command = commands::insert(VECTORS, documents);
            commands::run(&self.database, command).await?;
        }
        Ok(())
    }
}

fn binary(bytes: Vec<u8>) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes }
}

fn read(row: &RawDocument) -> Result<(TextHash, Vec<f32>), StoreError> {
    let damaged = |err: mongodb::bson::error::Error| StoreError::corrupt("a vector", err);
    let text = row.get_document("_id").and_then(|it| it.get_binary("t")).map_err(damaged)?;
    let text = <[u8; 32]>::try_from(text.bytes);
    let text = TextHash(text.map_err(|err| StoreError::corrupt("a vector", err))?);
    let numbers = row.get_binary("v").map_err(damaged)?;
    Ok((text, decode_vector(&text, numbers.bytes)?))
}
