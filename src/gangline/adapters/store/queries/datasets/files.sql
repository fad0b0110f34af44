-- The files of data sets' versions, and what was found of each picture.

-- name: add_dataset_file
-- A request that is repeated adds the same files.
INSERT INTO dataset_file (version, path, project, sha256, bytes, role) VALUES (:version, :path, :project, :sha256, :bytes, :role)
ON CONFLICT (version, path) DO NOTHING

-- name: dataset_files
-- List the files of a version in the order of their paths, with what was found of pictures.
SELECT dataset_file.path, dataset_file.sha256, dataset_file.bytes, dataset_file.role,
       photo.because, photo.format, photo.width, photo.height, photo.sharpness, photo.likeness, photo.thumbnail_bytes
FROM dataset_file LEFT JOIN photo ON photo.project = dataset_file.project AND photo.sha256 = dataset_file.sha256
WHERE dataset_file.version = :version AND dataset_file.path > :after ORDER BY dataset_file.path LIMIT :limit

-- name: file_of_version
-- Find a picture of a version by its content; the index of contents begins with the project.
SELECT dataset_file.path, dataset_file.bytes, photo.thumbnail_bytes
FROM dataset_file JOIN photo ON photo.project = dataset_file.project AND photo.sha256 = dataset_file.sha256
WHERE dataset_file.project = :project AND dataset_file.version = :version AND dataset_file.sha256 = :sha256 LIMIT 1

-- name: photos_to_inspect
-- List the contents of a version's pictures that nobody has looked at yet.
SELECT DISTINCT dataset_file.sha256, dataset_file.bytes
FROM dataset_file LEFT JOIN photo ON photo.project = dataset_file.project AND photo.sha256 = dataset_file.sha256
WHERE dataset_file.version = :version AND dataset_file.role <> 'caption' AND photo.sha256 IS NULL
ORDER BY dataset_file.sha256 LIMIT :limit

-- name: count_inspected
SELECT COUNT(*) AS pictures, COUNT(photo.sha256) AS inspected
FROM dataset_file LEFT JOIN photo ON photo.project = dataset_file.project AND photo.sha256 = dataset_file.sha256
WHERE dataset_file.version = :version AND dataset_file.role <> 'caption'

-- name: add_photo
INSERT INTO photo (project, sha256, because, format, width, height, sharpness, likeness, thumbnail_bytes)
VALUES (:project, :sha256, :because, :format, :width, :height, :sharpness, :likeness, :thumbnail_bytes)
ON CONFLICT (project, sha256) DO NOTHING

-- name: content_of_versions
-- List the contents of one version, or of all that are seen (`number` 0), and whether anything else holds each: a version that is removed
-- holds nothing. Each content is looked up once, however many files have it.
SELECT content.sha256, content.bytes,
       CASE WHEN EXISTS (SELECT 1 FROM dataset_file AS other JOIN dataset_version AS owner ON owner.id = other.version
                         WHERE other.project = content.project AND other.sha256 = content.sha256 AND owner.state <> 'going'
                           AND NOT (owner.dataset = :dataset AND (owner.number = :number OR :number = 0)
                                    AND owner.state IN ('checking', 'ready', 'refused')))
              OR EXISTS (SELECT 1 FROM job_file WHERE job_file.project = content.project AND job_file.sha256 = content.sha256)
              OR EXISTS (SELECT 1 FROM experiment_file
                         WHERE experiment_file.project = content.project AND experiment_file.sha256 = content.sha256)
            THEN 1 ELSE 0 END AS held
FROM (SELECT DISTINCT dataset_file.project, dataset_file.sha256, dataset_file.bytes
      FROM dataset_file JOIN dataset_version ON dataset_version.id = dataset_file.version
      WHERE dataset_version.dataset = :dataset AND (dataset_version.number = :number OR :number = 0)
        AND dataset_version.state IN ('checking', 'ready', 'refused')) AS content

-- name: files_going
-- List some files of a version that is removed.
SELECT path, sha256, role FROM dataset_file WHERE version = :version ORDER BY path LIMIT :limit

-- name: contents_going
-- List contents of a version that is removed, each with the row of its bytes, and whether another version or a job holds it. A version
-- that is removed holds nothing: of two that are removed at once, each does what the last one has to do, and nothing is left.
SELECT listed.id AS sha256, blob.used_ms,
       CASE WHEN EXISTS (SELECT 1 FROM dataset_file AS other JOIN dataset_version AS owner ON owner.id = other.version
                         WHERE other.project = :project AND other.sha256 = listed.id AND owner.state <> 'going')
            THEN 1 ELSE 0 END AS in_version,
       CASE WHEN EXISTS (SELECT 1 FROM job_file WHERE job_file.project = :project AND job_file.sha256 = listed.id)
              OR EXISTS (SELECT 1 FROM experiment_file WHERE experiment_file.project = :project AND experiment_file.sha256 = listed.id)
            THEN 1 ELSE 0 END AS in_job
FROM {listed_ids} LEFT JOIN blob ON blob.project = :project AND blob.sha256 = listed.id AND blob.going = ''

-- name: drop_dataset_file
DELETE FROM dataset_file WHERE version = :version AND path = :path

-- name: drop_photo
-- Forget what was found of a picture that no version has any more, but for such as are removed.
DELETE FROM photo WHERE project = :project AND sha256 = :sha256
  AND NOT EXISTS (SELECT 1 FROM dataset_file JOIN dataset_version ON dataset_version.id = dataset_file.version
                  WHERE dataset_file.project = photo.project AND dataset_file.sha256 = photo.sha256 AND dataset_version.state <> 'going')

-- name: forget_unusable_photos
-- A version that is pushed again is looked at again: a newer decoder may read what an older one could not.
DELETE FROM photo WHERE project = :project AND because <> ''
  AND sha256 IN (SELECT dataset_file.sha256 FROM dataset_file WHERE dataset_file.version = :version)

-- name: photos_held
-- List those of these contents that a version has which is not removed, or of which something is known.
SELECT listed.id AS sha256 FROM {listed_ids}
WHERE EXISTS (SELECT 1 FROM photo WHERE photo.project = :project AND photo.sha256 = listed.id)
   OR EXISTS (SELECT 1 FROM dataset_file JOIN dataset_version ON dataset_version.id = dataset_file.version
              WHERE dataset_file.project = :project AND dataset_file.sha256 = listed.id AND dataset_version.state <> 'going')

-- name: photo_sizes
-- List the width and height in pixels of those of these pictures that were looked at, and can be used.
SELECT photo.sha256, photo.width, photo.height
FROM {listed_ids} JOIN photo ON photo.project = :project AND photo.sha256 = listed.id
WHERE photo.because = ''

-- name: stored_thumbnails
SELECT COUNT(*) AS files, CAST(COALESCE(SUM(thumbnail_bytes), 0) AS BIGINT) AS bytes FROM photo
WHERE project = :project AND thumbnail_bytes > 0

-- name: blobs_recorded
-- List those of these contents that are stored or on their way out.
SELECT blob.sha256, blob.bytes, blob.going
FROM {listed_ids} JOIN blob ON blob.project = :project AND blob.sha256 = listed.id
