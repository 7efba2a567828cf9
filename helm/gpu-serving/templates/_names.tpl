{{/* Names and labels. */}}

{{/* Arena's name of the objects: <release>-<server>-serving. */}}
{{- define "serving.fullname" -}}
{{- printf "%s-%s-serving" (.Release.Name | trunc 43 | trimSuffix "-") .Values.server -}}
{{- end -}}

{{- define "serving.name" -}}
{{- default .Release.Name .Values.servingName -}}
{{- end -}}

{{/* Labels that choose the pods; they must never change. */}}
{{- define "serving.selector" -}}
release: {{ .Release.Name | quote }}
app: {{ printf "%s-serving" .Values.server }}
{{- end -}}

{{/* Arena's labels, by which its commands find model servers, and the recommended ones. */}}
{{- define "serving.labels" -}}
{{ include "serving.selector" . }}
heritage: {{ .Release.Service | quote }}
chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
serviceName: {{ include "serving.name" . | quote }}
servingName: {{ include "serving.name" . | quote }}
servingType: {{ include "serving.type" . }}
servingVersion: {{ .Values.servingVersion | quote }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: {{ .Values.server }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Arena's name of the kind of server; arena has none for torchserve and vllm. */}}
{{- define "serving.type" -}}
{{- get (dict "tensorflow" "tf-serving") .Values.server | default (printf "%s-serving" .Values.server) -}}
{{- end -}}
